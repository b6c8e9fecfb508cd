package blob

import (
	"context"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

const (
	shelterFor = 2 * time.Second // from being asked for to being read
	maxWanted  = 4096            // values that wait to be promoted
	promoters  = 4               // that do so at a time
)

// shelter keeps values that Has found for a moment, first in, first out. It holds a
// lease of the daemon's for each.
type shelter struct {
	wanted chan key.Hash // to be promoted and sheltered
	wake   chan struct{} // the queue is no longer empty
	mu     struct {
		sync.Mutex
		queue  []sheltered // oldest first
		kept   map[ledger.ID]struct{}
		bytes  int64
		closed bool
	}
}

type sheltered struct {
	ref   tier.Ref
	bytes int64
	until time.Time
}

// keep shelters the value of the name with that hash, after a promotion if it takes
// one. Where there is no room, or too much to promote, that costs speed and no more.
func (s *Store) keep(h key.Hash) {
	var p place
	p.at(h)
	var refs [1]tier.Ref
	n, err := s.o.Stack.Hold(ledger.Daemon, ledger.Lease, &p.Chain, 0, 1, refs[:])
	switch {
	case n == 1:
		s.take(refs[0])
	case err == nil:
		select {
		case s.shelter.wanted <- h:
		default:
		}
	}
}

func (s *Store) keepPromoting(ctx context.Context) {
	for {
		select {
		case h := <-s.shelter.wanted:
			var p place
			p.at(h)
			if ref, err := s.lease(ctx, ledger.Daemon, &p); err == nil {
				s.take(ref)
			}
		case <-ctx.Done():
			return
		}
	}
}

// take owns a lease of the daemon's from now on. Values that were sheltered for longer
// make room.
func (s *Store) take(ref tier.Ref) {
	s.letGo(s.shelter.push(sheltered{ref, int64(len(ref.Block.Padded())), time.Now().Add(shelterFor)}, s.o.ShelterBytes))
}

func (s *Store) letGo(refs []tier.Ref) { s.o.Stack.Release(ledger.Daemon, ledger.Lease, refs) }

// push takes a value in, and returns the leases to let go for it: its own where the value is
// sheltered already, or larger than most.
func (sh *shelter) push(v sheltered, most int64) (out []tier.Ref) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if _, twice := sh.mu.kept[v.ref.ID]; twice || sh.mu.closed || v.bytes > most {
		return []tier.Ref{v.ref}
	}
	out = sh.pop(func(*sheltered) bool { return sh.mu.bytes+v.bytes > most })
	if sh.mu.kept == nil {
		sh.mu.kept = make(map[ledger.ID]struct{})
	}
	sh.mu.queue = append(sh.mu.queue, v)
	sh.mu.kept[v.ref.ID] = struct{}{}
	sh.mu.bytes += v.bytes
	select {
	case sh.wake <- struct{}{}:
	default:
	}
	return out
}

// pop takes the oldest values out, as long as they are to go. It is called with the
// mutex held.
func (sh *shelter) pop(goes func(*sheltered) bool) (refs []tier.Ref) {
	for len(sh.mu.queue) > 0 && goes(&sh.mu.queue[0]) {
		v := sh.mu.queue[0]
		sh.mu.queue[0] = sheltered{}
		sh.mu.queue = sh.mu.queue[1:]
		sh.mu.bytes -= v.bytes
		delete(sh.mu.kept, v.ref.ID)
		refs = append(refs, v.ref)
	}
	return refs
}

// keepSheltered lets go of each value when its time is over, and of all when ctx ends.
func (s *Store) keepSheltered(ctx context.Context) {
	for {
		select {
		case <-s.shelter.wake:
		case <-ctx.Done():
			s.letGo(s.shelter.close())
			return
		}
		for {
			over, next := s.shelter.over()
			if s.letGo(over); next == 0 {
				break
			}
			select {
			case <-time.After(next):
			case <-ctx.Done():
				s.letGo(s.shelter.close())
				return
			}
		}
	}
}

// over takes out the values whose time is over, and returns how long the next one has
// left; 0 = there is none.
func (sh *shelter) over() (out []tier.Ref, next time.Duration) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := time.Now()
	out = sh.pop(func(v *sheltered) bool { return !v.until.After(now) })
	if len(sh.mu.queue) > 0 {
		next = sh.mu.queue[0].until.Sub(now)
	}
	return out, next
}

// close takes all out, and has push take nothing any more.
func (sh *shelter) close() []tier.Ref {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.mu.closed = true
	return sh.pop(func(*sheltered) bool { return true })
}
