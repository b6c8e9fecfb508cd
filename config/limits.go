package config

import (
	"cmp"
	"time"
)

// Limits bound what clients cost outside the arena: see [bounds](../guarantees.md#bounds).
type Limits struct {
	// What all clients may cost; 0 is derived, as `kvstored check` prints.
	Memory Bytes `yaml:"memory" range:"0,256MiB.."`
	// Share of it that one user may hold.
	UIDMemory float64 `yaml:"uid_memory" range:"0.5..1"`
	// Chunks that DRAM, and the disk, may have; 0 is derived from memory.
	Chunks int `yaml:"chunks" range:"0,4096..1073741824"`
	// Longest without progress amid a frame, command or reply.
	Stall time.Duration `yaml:"stall" range:"1s..1h"`
	// Connections of all clients; 16 are for administrators.
	Connections int `yaml:"connections" range:"64..65534"`
	// Connections of one user, or of one host over TCP; 0 is half.
	UIDConnections int `yaml:"uid_connections" range:"0.."`
	// Prefetches and reservations of one user.
	UIDJobs int `yaml:"uid_jobs" range:"64..1048576"`
}

const (
	// LeastMemory is the least that limits.memory may be: one payload of the
	// largest size is held twice while it is answered, and so for two clients.
	LeastMemory = 256 * mib
	// AdminConnections of limits.connections are for administrators only.
	AdminConnections = 16
)

// OfOneUser is how many connections one user may have.
func (l *Limits) OfOneUser() int { return cmp.Or(l.UIDConnections, l.Connections/2) }
