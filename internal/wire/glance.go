package wire

// GlanceFrame is TryReadFrame that does not spin either: it returns ErrWouldBlock at once
// where no frame is complete.
func (c *Conn) GlanceFrame() (Header, []byte, error) {
	c.glances = true
	defer func() { c.glances = false }()
	return c.read(false)
}
