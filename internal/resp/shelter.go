package resp

import (
	"context"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

const (
	shelterFor = 2 * time.Second // at least, from being asked for to being read; twice that at most
	maxWanted  = 4096            // values that wait to be promoted
	promoters  = 4               // that do so at a time
)

// shelter holds a lease of the daemon's for each value that Has has found in this
// turn of shelterFor, and in the one before. Its mutex is a leaf.
type shelter struct {
	wanted chan key.Hash // to be promoted and sheltered
	mu     struct {
		sync.Mutex
		young, old []tier.Ref
		bytes      int64 // of young
		closed     bool
	}
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

// take owns a lease of the daemon's from now on. Those of the last turn make room.
func (s *Store) take(ref tier.Ref) { s.letGo(s.shelter.push(ref, s.o.ShelterBytes/2)) }

func (s *Store) letGo(refs []tier.Ref) { s.o.Stack.Release(ledger.Daemon, ledger.Lease, refs) }

// push takes a value in, and returns the leases to let go for it: its own where the value is
// larger than most, which a turn may have.
func (sh *shelter) push(ref tier.Ref, most int64) (out []tier.Ref) {
	n := int64(len(ref.Block.Padded()))
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.mu.closed || n > most {
		return []tier.Ref{ref}
	}
	if sh.mu.bytes+n > most {
		out = sh.turn()
	}
	sh.mu.young = append(sh.mu.young, ref)
	sh.mu.bytes += n
	return out
}

// turn ends a turn, and returns the leases of the one before. It is called with the mutex
// held.
func (sh *shelter) turn() (out []tier.Ref) {
	out, sh.mu.old, sh.mu.young, sh.mu.bytes = sh.mu.old, sh.mu.young, nil, 0
	return out
}

// keepSheltered ends one turn after the other, and lets go of all when ctx ends.
func (s *Store) keepSheltered(ctx context.Context) {
	for base.Sleep(ctx, shelterFor) == nil {
		s.letGo(s.shelter.over(false))
	}
	s.letGo(s.shelter.over(true))
}

// over ends a turn; the last one ends both, and push takes nothing any more.
func (sh *shelter) over(last bool) (out []tier.Ref) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if out = sh.turn(); last {
		sh.mu.closed = true
		out = append(out, sh.turn()...)
	}
	return out
}
