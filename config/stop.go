package config

import "time"

// Stop bounds the end of the daemon.
type Stop struct {
	// Longest to write at SIGTERM the chunks that are not below DRAM yet, most
	// used first. The end takes up to 5s more; 0s writes nothing.
	Flush time.Duration `yaml:"flush" range:"0s..1h" reload:"at the stop"`
}

// maxStopFlush: a longer end is no end; a flush by hand has no limit.
const maxStopFlush = time.Hour

func (c *checker) stop() {
	if f := c.Stop.Flush; f < 0 || f > maxStopFlush {
		c.fail("stop.flush", "want a duration from 0s to %s, not %s", durationText(maxStopFlush), durationText(f))
	}
}
