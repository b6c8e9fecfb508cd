package wire

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// GlanceFrame is TryReadFrame that does not spin either: it returns ErrWouldBlock at once
// where no frame is complete.
func (c *Conn) GlanceFrame() (Header, []byte, error) {
	c.glances = true
	defer func() { c.glances = false }()
	return c.read(false)
}

// readNow is receiver.read within GlanceFrame.
func (c *Conn) readNow(raw syscall.RawConn, p []byte, _ bool) (int, error) {
	return c.rd.readNow(raw, p)
}

// Hung reports whether the peer has closed its end, or this end is closed. It may be called
// beside a read; what has come is left there.
func (c *Conn) Hung() bool {
	hung := false
	err := c.raw.Control(func(fd uintptr) {
		look := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(look, 0)
		hung = err == nil && n > 0 && look[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return err != nil || hung
}
