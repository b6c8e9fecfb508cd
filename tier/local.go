package tier

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

// KeepLocal keeps a space out of the remote tier: nothing of it is written or
// looked for there, nor deleted. It is for keys whose payload may change, which
// a tier that never overwrites, and that others use too, cannot follow. Call it
// before anything of the space is stored.
func (s *Stack) KeepLocal(id key.SpaceID) { s.local.add(id) }

// reach is the tiers that what is stored under a space may be in.
func (s *Stack) reach(id key.SpaceID) Set {
	if s.local.has(id) {
		return All &^ Of(Remote)
	}
	return All
}

// nearest is the writer that takes chunks of a space first; nil if they stay in
// DRAM.
func (s *Stack) nearest(id key.SpaceID) *writer {
	reach := s.reach(id)
	for _, w := range s.writers {
		if reach.Has(w.place) {
			return w
		}
	}
	return nil
}

// takes reports whether a space is written to the writer's tier.
func (w *writer) takes(id key.SpaceID) bool { return w.stack.reach(id).Has(w.place) }
