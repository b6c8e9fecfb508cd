package stack

import (
	"slices"
	"sync/atomic"

	"github.com/kvstored/kvstored/key"
)

// locals is the spaces that no shared tier may have: few, and known early.
type locals struct {
	spaces atomic.Pointer[[]key.SpaceID]
}

func (l *locals) add(id key.SpaceID) {
	for {
		old := l.spaces.Load()
		fresh := []key.SpaceID{id}
		if old != nil {
			fresh = append(fresh, *old...)
		}
		if l.spaces.CompareAndSwap(old, &fresh) {
			return
		}
	}
}

func (l *locals) has(id key.SpaceID) bool {
	s := l.spaces.Load()
	return s != nil && slices.Contains(*s, id)
}

// KeepLocal keeps a space out of the tiers that are shared with others: nothing of it is written or
// looked for there, nor deleted. It is for keys whose payload may change, which
// a tier that never overwrites, and that others use too, cannot follow. Call it
// before anything of the space is stored.
func (d *dram) KeepLocal(id key.SpaceID) { d.local.add(id) }
