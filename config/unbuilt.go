package config

// unbuilt refuses what the file may already name but this version cannot do
// yet: a setting that has no effect must not be accepted in silence.
func (c *checker) unbuilt() {
	if n := len(c.Disk.Paths); n > 1 {
		c.fail("disk.paths", "this version has one folder at most, not %d; give one", n)
	}
}
