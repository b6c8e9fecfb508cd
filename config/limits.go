package config

import (
	"cmp"
	"time"
)

// Limits bound what clients can cost outside the arena; [limits.md](limits.md) has
// all limits there are.
type Limits struct {
	// What all clients may cost outside cpu.capacity; 0 is derived from the memory
	// of the control group, as `kvstored check` prints.
	Memory Bytes `yaml:"memory" range:"0,256MiB.."`
	// Share of it that one user may hold.
	UIDMemory float64 `yaml:"uid_memory" range:"0.5..1"`
	// Chunks that DRAM, and the disk tier, may have, each, which bounds the memory for
	// what is known of them; beyond it chunks are evicted, however small they are. 0
	// is derived as limits.memory is.
	Chunks int `yaml:"chunks" range:"0,4096..1073741824"`
	// Longest without progress in the middle of a frame, a command or a reply;
	// then the connection ends.
	Stall time.Duration `yaml:"stall" range:"1s..1h"`
	// Connections of all clients and front ends; 16 of them are kept for
	// administrators.
	Connections int `yaml:"connections" range:"64..65534"`
	// Connections of one user, or of one host over TCP, at most limits.connections;
	// 0 is half of that.
	UIDConnections int `yaml:"uid_connections" range:"0.."`
	// Prefetches and reservations of one user that have not ended.
	UIDJobs int `yaml:"uid_jobs" range:"64..1048576"`
}

const (
	// LeastMemory is the least that limits.memory may be: one payload of the
	// largest size is held twice while it is answered, and so for two clients.
	LeastMemory = 256 * mib
	// leastUIDMemory leaves one user room for such an answer.
	leastUIDMemory = 0.5
	// maxStall is the most that limits.stall can be.
	maxStall = time.Hour
	// AdminConnections of limits.connections are for administrators only.
	AdminConnections = 16
	leastConnections = 4 * AdminConnections
	maxConnections   = 1<<16 - 2 // as many may hold something in a tier
	leastChunks      = 4096
	maxChunks        = 1 << 30 // entries are numbered by 32 bits
	leastUIDJobs     = 64
	maxUIDJobs       = 1 << 20
)

// OfOneUser is how many connections one user may have.
func (l *Limits) OfOneUser() int { return cmp.Or(l.UIDConnections, l.Connections/2) }

func (c *checker) limits() {
	l := &c.Limits
	if l.Memory != 0 {
		c.size("limits.memory", l.Memory, LeastMemory)
	}
	if !(l.UIDMemory >= leastUIDMemory && l.UIDMemory <= 1) {
		c.fail("limits.uid_memory", "want a share from %v to 1, not %v", leastUIDMemory, l.UIDMemory)
	}
	if l.Chunks != 0 && (l.Chunks < leastChunks || l.Chunks > maxChunks) {
		c.fail("limits.chunks", "want %d to %d, or 0 to have it derived, not %d", leastChunks, maxChunks, l.Chunks)
	}
	if l.Stall < time.Second || l.Stall > maxStall {
		c.fail("limits.stall", "want a duration from 1s to %s, not %s", durationText(maxStall), durationText(l.Stall))
	}
	if l.Connections < leastConnections || l.Connections > maxConnections {
		c.fail("limits.connections", "want %d to %d, not %d", leastConnections, maxConnections, l.Connections)
	} else if l.UIDConnections < 0 || l.UIDConnections > l.Connections {
		c.fail("limits.uid_connections", "want 1 to the %d of limits.connections, or 0 for half of them, not %d", l.Connections, l.UIDConnections)
	}
	if l.UIDJobs < leastUIDJobs || l.UIDJobs > maxUIDJobs {
		c.fail("limits.uid_jobs", "want %d to %d, not %d", leastUIDJobs, maxUIDJobs, l.UIDJobs)
	}
}
