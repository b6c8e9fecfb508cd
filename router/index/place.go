package index

import (
	"fmt"
	"math/bits"
)

// Medium is where a worker has a block, nearest to its processor first.
type Medium uint8

// The media.
const (
	GPU    Medium = iota // memory of the accelerator
	CPU                  // DRAM
	Disk                 // a local disk
	Shared               // a store that other workers reach too, such as a bucket

	Media = 4 // how many there are
)

// String is the medium's name in lower case.
func (m Medium) String() string {
	if m >= Media {
		return fmt.Sprintf("medium %d", uint8(m))
	}
	return [Media]string{"gpu", "cpu", "disk", "shared"}[m]
}

// Worker is one engine that holds blocks: an id, and the rank inside an engine
// of several data-parallel ranks.
type Worker struct {
	ID   string
	Rank uint32
}

// String is "id" or, for ranks above 0, "id/rank".
func (w Worker) String() string {
	if w.Rank == 0 {
		return w.ID
	}
	return fmt.Sprintf("%s/%d", w.ID, w.Rank)
}

// At is where blocks are: on which worker, of which group of layers (its place
// in [Config].Groups), in which medium.
type At struct {
	Worker Worker
	Group  int
	Medium Medium
}

// element is one member of a set: column and mask. The mask of a block's own set
// has a bit for each medium that has it; the mask of a cover has one bit, the
// level: the farthest medium that the worker needs for this block and all before
// it, if it takes each from the nearest that has it.
type element uint32

// column is a worker's slot and a group. Order by column keeps the groups of a
// worker together.
type column uint32

const (
	maskBits  = Media
	groupBits = 3
	slotBits  = 24

	// MaxGroups is the most groups of a shard.
	MaxGroups = 1 << groupBits
	maxSlots  = 1 << slotBits
)

func columnOf(slot uint32, group int) column { return column(slot<<groupBits | uint32(group)) }

func (c column) slot() uint32 { return uint32(c) >> groupBits }
func (c column) group() int   { return int(c) & (MaxGroups - 1) }

func (c column) with(m mask) element { return element(c)<<maskBits | element(m) }

func (e element) column() column { return column(e >> maskBits) }
func (e element) mask() mask     { return mask(e & (1<<maskBits - 1)) }

// media is in how many media it is.
func (e element) media() int { return bits.OnesCount8(uint8(e.mask())) }

// mask is a set of media.
type mask uint8

// none is the level of a worker that does not have a block, or not all before it.
const none = Media

// level is the nearest medium of a mask.
func (m mask) level() int { return int(nearest[m&(1<<maskBits-1)]) }

// cover is the mask of a cover with this level; empty for none.
func cover(level int) mask { return 1 << level & (1<<maskBits - 1) }

var nearest = [1 << maskBits]uint8{none, 0, 1, 0, 2, 0, 1, 0, 3, 0, 1, 0, 2, 0, 1, 0}
