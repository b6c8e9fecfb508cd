package events

import (
	"time"

	"github.com/kvstored/kvstored/key"
)

// Kind is what a change says.
type Kind uint8

// The kinds of changes. The numbers are those of the protocol.
const (
	Stored  Kind = iota // the chunk is in the tier
	Removed             // it is not any more
	Cleared             // nothing is known to be anywhere; what is there is said again
)

// String is the kind's name.
func (k Kind) String() string {
	if k > Cleared {
		return "unknown"
	}
	return [...]string{"stored", "removed", "cleared"}[k]
}

// Change is one change of what one tier holds.
type Change struct {
	Kind   Kind
	Place  uint8    // the tier, by its place
	Tokens uint32   // in the chunk, of Stored; 0: as many as a chunk of the space has
	Key    key.Key  // zero in Cleared
	Parent key.Hash // the chunk before it, of Stored; zero for the first of a prompt
}

// Batch is changes that were made about the same time, in order.
type Batch struct {
	Seq     uint64 // counts batches of one life of the daemon, from 0
	Time    time.Time
	Changes []Change // not to be changed
}
