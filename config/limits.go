package config

import "cmp"

// Limits bound what clients cost outside the arena: see [bounds](../guarantees.md#bounds).
type Limits struct {
	// What all clients may cost; 0 is derived, as `kvstored check` prints.
	Memory Bytes `yaml:"memory" range:"0,256MiB.."`
	// Connections of all clients; 16 are for administrators.
	Connections int `yaml:"connections" range:"64..65534"`
	// Connections of one user, or of one host over TCP; 0 is half.
	UIDConnections int `yaml:"uid_connections" range:"0.."`
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
