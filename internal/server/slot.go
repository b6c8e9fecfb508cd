package server

import (
	"math/bits"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// slot is one chunk of a reservation.
type slot struct {
	status stack.GrantStatus
	ref    tier.Ref // valid while granted and not given up
	window int64    // where its bytes lie in the staging window; with staged puts
	room   int      // bytes of the window, of a slot without a key that is not given up
	late   int      // bytes of the window that it keeps, though given up; see revoke
	there  uint32   // bytes of what exists already; 0: not known
	acks   uint64   // a bit for each writer that has committed it
	waits  bool     // of a slot taken for a commit: other writers are not done
}

// live reports whether the slot is granted and not given up.
func (s *slot) live() bool { return s.ref.Valid() || s.room > 0 }

// size is how many bytes a live slot has.
func (s *slot) size() int {
	if s.ref.Valid() {
		return s.ref.Block.Len()
	}
	return s.room
}

// take takes the live slots of a range over; the others are zero. An aged
// fill has none. With an ack slots that other writers have yet to commit stay. The client that names slots writes to them no more, so that
// their parts of the window are free then.
func (f *fill) take(from, to int, ack *ack) ([]slot, error) {
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
	var writer uint64
	if ack != nil {
		var err error
		if writer, err = f.acknowledge(ack, from, to); err != nil {
			return nil, err
		}
	}
	return f.takeLive(from, to, writer), nil
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

// takeLive is called with the mutex held. For a writer, which is a bit, a slot that
// others have yet to commit stays; 0 takes it from all.
func (f *fill) takeLive(from, to int, writer uint64) []slot {
	out := make([]slot, to-from)
	for i := range out {
		s := &f.mu.slots[from+i]
		if !s.live() {
			continue
		}
		if s.acks |= writer; writer != 0 && bits.OnesCount64(s.acks) < f.writers {
			out[i].waits = true
			continue
		}
		out[i] = *s
		s.ref, s.room = tier.Ref{}, 0
		f.mu.live--
	}
	return out
}

// seal makes a slot's bytes final and returns their checksum. A staged
// payload is copied first and hashed where it lies then: the client can still write
// to the window, not to the arena.
func (f *fill) seal(s slot, look arena.Look) (sum uint64, err error) {
	staging, b := f.session.staging, s.ref.Block
	if staging == nil {
		return b.Seal(), nil
	}
	if sum, err = b.WriteFrom(staging.window, s.window, look); err != nil {
		return 0, err
	}
	b.SealSum(sum)
	staging.free(s.window, b.Len())
	return sum, nil
}
