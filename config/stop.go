package config

import "time"

// Stop bounds the end of the daemon.
type Stop struct {
	// Flush is how long the daemon writes, once its clients are gone, what is
	// not below DRAM yet; 0 = not at all.
	Flush time.Duration `yaml:"flush" reload:"live"`
}

// maxStopFlush: a longer end is no end; a flush by hand has no limit.
const maxStopFlush = time.Hour

func (c *checker) stop() {
	if f := c.Stop.Flush; f < 0 || f > maxStopFlush {
		c.fail("stop.flush", "want a duration from 0s to %s, not %s", durationText(maxStopFlush), durationText(f))
	}
}
