package config

import "time"

// Limits bound what clients can cost outside the arena; docs/limits.md has all
// limits there are.
type Limits struct {
	Memory    Bytes         `yaml:"memory"`     // of all clients, outside the arena; 0 = derived
	UIDMemory float64       `yaml:"uid_memory"` // share of Memory that one user may hold
	Stall     time.Duration `yaml:"stall"`      // longest without progress within a frame, a command or a reply
}

const (
	// LeastMemory is the least that limits.memory may be: one payload of the
	// largest size is held twice while it is answered, and so for two clients.
	LeastMemory = 256 * mib
	// leastUIDMemory leaves one user room for such an answer.
	leastUIDMemory = 0.5
	// maxStall is how long a client that has stopped may keep what it holds.
	maxStall = time.Hour
)

func (c *checker) limits() {
	l := &c.Limits
	if l.Memory != 0 {
		c.size("limits.memory", l.Memory, LeastMemory)
	}
	if !(l.UIDMemory >= leastUIDMemory && l.UIDMemory <= 1) {
		c.fail("limits.uid_memory", "want a share from %v to 1, not %v", leastUIDMemory, l.UIDMemory)
	}
	if l.Stall < time.Second || l.Stall > maxStall {
		c.fail("limits.stall", "want a duration from 1s to %s, not %s", durationText(maxStall), durationText(l.Stall))
	}
}
