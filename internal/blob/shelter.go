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

// shelter keeps values that Has found for a moment, first in, first out.
type shelter struct {
	wanted chan key.Hash
	mu     struct {
		sync.Mutex
		queue  []sheltered           // oldest first
		within map[key.Hash]tier.Ref // of each name the youngest
		bytes  int64
		timer  *time.Timer
		closed bool
	}
}

type sheltered struct {
	name  key.Hash
	ref   tier.Ref
	bytes int64
	until time.Time
}

// Run promotes values that Has was asked for, and makes the deletions owed,
// until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	workers.Go(func() { s.keepPaying(ctx) })
	for range promoters {
		workers.Go(func() {
			for {
				select {
				case h := <-s.shelter.wanted:
					s.promote(ctx, h)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	workers.Wait()
	s.closeShelter()
	return nil
}

// want asks the promoters for a value; a full queue costs speed and no more.
func (s *Store) want(h key.Hash) {
	select {
	case s.shelter.wanted <- h:
	default:
	}
}

func (s *Store) promote(ctx context.Context, h key.Hash) {
	var p place
	p.at(s.space, h)
	if ref, err := s.load(ctx, ledger.Daemon, &p); err == nil {
		s.take([]key.Hash{h}, []tier.Ref{ref})
	}
}

// keep shelters a value that is in DRAM, if the budget of leases has room.
func (s *Store) keep(c *key.Chain) {
	var refs [1]tier.Ref
	if n, _ := s.o.Stack.Hold(ledger.Daemon, ledger.Lease, c, 0, 1, refs[:]); n == 1 {
		s.take(c.Hashes, refs[:])
	}
}

// take owns leases of the daemon's from now on, of values of the names with those
// hashes; refs that are not valid are passed over.
func (s *Store) take(hashes []key.Hash, refs []tier.Ref) {
	sh := &s.shelter
	var out []tier.Ref
	sh.mu.Lock()
	for i, ref := range refs {
		switch {
		case !ref.Valid():
			continue
		case sh.mu.within[hashes[i]].ID == ref.ID || !s.fits(ref):
			out = append(out, ref)
			continue
		}
		n := int64(len(ref.Block.Padded()))
		for len(sh.mu.queue) > 0 && sh.mu.bytes+n > s.o.ShelterBytes {
			out = append(out, sh.pop())
		}
		s.push(sheltered{name: hashes[i], ref: ref, bytes: n, until: time.Now().Add(shelterFor)})
	}
	sh.mu.Unlock()
	s.o.Stack.Release(ledger.Daemon, ledger.Lease, out)
}

// fits reports whether the shelter takes a value at all; called with the mutex held.
func (s *Store) fits(ref tier.Ref) bool {
	return !s.shelter.mu.closed && int64(len(ref.Block.Padded())) <= s.o.ShelterBytes
}

// shelters reports whether the value of a name is sheltered, in that entry.
func (sh *shelter) shelters(name key.Hash, id ledger.ID) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.mu.within[name].ID == id
}

// borrow takes a reference of the block of each name that is sheltered; refs of the
// others are zero. It may be an old value by now.
func (sh *shelter) borrow(names []key.Hash, refs []tier.Ref) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for i, name := range names {
		if refs[i] = sh.mu.within[name]; refs[i].Valid() {
			refs[i].Block.Retain()
		}
	}
}

// push and pop are called with the mutex held.
func (s *Store) push(v sheltered) {
	sh := &s.shelter
	if sh.mu.within == nil {
		sh.mu.within = make(map[key.Hash]tier.Ref)
	}
	sh.mu.within[v.name] = v.ref
	sh.mu.queue = append(sh.mu.queue, v)
	sh.mu.bytes += v.bytes
	if len(sh.mu.queue) > 1 {
		return // the timer runs
	}
	if sh.mu.timer == nil {
		sh.mu.timer = time.AfterFunc(shelterFor, s.expireShelter)
		return
	}
	sh.mu.timer.Reset(shelterFor)
}

func (sh *shelter) pop() tier.Ref {
	v := sh.mu.queue[0]
	sh.mu.queue = sh.mu.queue[1:]
	sh.mu.bytes -= v.bytes
	if sh.mu.within[v.name].ID == v.ref.ID {
		delete(sh.mu.within, v.name)
	}
	return v.ref
}

// expireShelter lets go of values that are old enough.
func (s *Store) expireShelter() {
	sh := &s.shelter
	var out []tier.Ref
	sh.mu.Lock()
	for now := time.Now(); len(sh.mu.queue) > 0; {
		if wait := sh.mu.queue[0].until.Sub(now); wait > 0 {
			sh.mu.timer.Reset(wait)
			break
		}
		out = append(out, sh.pop())
	}
	sh.mu.Unlock()
	s.o.Stack.Release(ledger.Daemon, ledger.Lease, out)
}

func (s *Store) closeShelter() {
	sh := &s.shelter
	var out []tier.Ref
	sh.mu.Lock()
	sh.mu.closed = true
	for len(sh.mu.queue) > 0 {
		out = append(out, sh.pop())
	}
	if sh.mu.timer != nil {
		sh.mu.timer.Stop()
	}
	sh.mu.Unlock()
	s.o.Stack.Release(ledger.Daemon, ledger.Lease, out)
}
