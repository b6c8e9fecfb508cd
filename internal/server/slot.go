package server

import (
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// slot is one chunk of a reservation.
type slot struct {
	status stack.GrantStatus
	ref    tier.Ref // valid while granted and not given up
	window int64    // where its bytes lie in the staging window
	late   int      // bytes of the window that it keeps, though given up; see revoke
	there  uint32   // bytes of what exists already; 0: not known
}

// take takes the live slots of a range over; the others are zero. An aged
// fill has none. The client that names slots writes to them no more, so that
// their parts of the window are free then.
func (f *fill) take(from, to int) ([]slot, error) {
	f.mu.Lock()
	if f.mu.aged {
		f.mu.told = true
		late := f.takeLate(from, to)
		f.mu.Unlock()
		for _, s := range late {
			f.session.staging.free(s.window, s.late)
		}
		return nil, refuse(wire.CodeRevoked, "fill %d was given up: it was neither committed nor aborted within %v; reserve again", f.id, f.session.leaseAge)
	}
	defer f.mu.Unlock()
	return f.takeLive(from, to), nil
}

// takeLate takes over what slots of an aged fill keep of the window. The mutex
// is held.
func (f *fill) takeLate(from, to int) (late []slot) {
	for i := from; i < to; i++ {
		if s := &f.mu.slots[i]; s.late > 0 {
			late = append(late, *s)
			s.late = 0
			f.mu.late--
		}
	}
	return late
}

// takeLive is called with the mutex held.
func (f *fill) takeLive(from, to int) []slot {
	out := make([]slot, to-from)
	for i := range out {
		s := &f.mu.slots[from+i]
		if !s.ref.Valid() {
			continue
		}
		out[i] = *s
		s.ref = tier.Ref{}
		f.mu.live--
	}
	return out
}

// seal makes a slot's bytes final and returns their checksum. A staged
// payload is copied first and hashed where it lies then: the client can still write
// to the window, not to the arena.
func (f *fill) seal(s slot, look arena.Look) (sum uint64, err error) {
	staging, b := f.session.staging, s.ref.Block
	if sum, err = b.WriteFrom(staging.window, s.window, look); err != nil {
		return 0, err
	}
	b.SealSum(sum)
	staging.free(s.window, b.Len())
	return sum, nil
}
