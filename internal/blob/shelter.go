package blob

import (
	"bytes"
	"context"
	"hash/maphash"
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
	wanted   chan key.Hash
	seed     maphash.Seed
	expiring sync.Mutex // held while values that are old, or all, are let go of; taken before mu
	mu       struct {
		sync.Mutex
		queue  []sheltered       // oldest first
		gone   uint64            // how many have left the queue
		within map[uint64]uint64 // by the sum of a name: which one that ever came it is, the youngest
		spare  []byte            // room of a name that has left
		bytes  int64
		timer  *time.Timer
		closed bool
	}
}

// sheltered is a value that is leased, and what its header says.
type sheltered struct {
	found
	sum   uint64 // of the name
	name  []byte // a copy: payloads lie far apart
	ref   tier.Ref
	bytes int64
	until time.Time
}

// found is what a sheltered value says of its name.
type found struct {
	hash    key.Hash
	id      ledger.ID // 0: the name is not sheltered
	expires int64
}

// sum is what the shelter knows a name by. Others may have the same.
func (sh *shelter) sum(name []byte) uint64 { return maphash.Bytes(sh.seed, name) }

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
		if !ref.Valid() {
			continue
		}
		h, ok := parseHeader(ref.Block.Bytes())
		sum := sh.sum(h.name)
		if had := sh.find(h.name, sum); !ok || had != nil && had.id == ref.ID || !s.fits(ref) {
			out = append(out, ref)
			continue
		}
		n := int64(len(ref.Block.Padded()))
		for len(sh.mu.queue) > 0 && sh.mu.bytes+n > s.o.ShelterBytes {
			out = append(out, sh.pop())
		}
		s.push(sheltered{
			found: found{hash: hashes[i], id: ref.ID, expires: h.expires},
			sum:   sum, name: append(sh.mu.spare, h.name...), ref: ref, bytes: n, until: time.Now().Add(shelterFor),
		})
		sh.mu.spare = nil
	}
	sh.mu.Unlock()
	s.o.Stack.Release(ledger.Daemon, ledger.Lease, out)
}

// fits reports whether the shelter takes a value at all; called with the mutex held.
func (s *Store) fits(ref tier.Ref) bool {
	return !s.shelter.mu.closed && int64(len(ref.Block.Padded())) <= s.o.ShelterBytes
}

// find returns the value of a name that is sheltered, good until the mutex is
// given back, or nil; called with the mutex held. The name may have another value by
// now.
func (sh *shelter) find(name []byte, sum uint64) *sheltered {
	nth, is := sh.mu.within[sum]
	if !is {
		return nil
	}
	if v := &sh.mu.queue[nth-sh.mu.gone]; bytes.Equal(v.name, name) {
		return v
	}
	return nil
}

// shelters reports whether the value of a name is sheltered, in that entry.
func (sh *shelter) shelters(name []byte, id ledger.ID) bool {
	sum := sh.sum(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	v := sh.find(name, sum)
	return v != nil && v.id == id
}

// recall sets all[i] to what the shelter knows of list[i], or to zero.
func (sh *shelter) recall(list [][]byte, all *[PassNames]found) {
	var sums [PassNames]uint64
	for i, name := range list {
		sums[i] = sh.sum(name)
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for i, name := range list {
		if all[i] = (found{}); len(sh.mu.queue) == 0 {
			continue
		}
		if v := sh.find(name, sums[i]); v != nil {
			all[i] = v.found
		}
	}
}

// push and pop are called with the mutex held.
func (s *Store) push(v sheltered) {
	sh := &s.shelter
	if sh.mu.within == nil {
		sh.mu.within = make(map[uint64]uint64)
	}
	sh.mu.within[v.sum] = sh.mu.gone + uint64(len(sh.mu.queue))
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
	sh.mu.queue[0] = sheltered{}
	sh.mu.queue = sh.mu.queue[1:]
	sh.mu.bytes -= v.bytes
	if sh.mu.within[v.sum] == sh.mu.gone {
		delete(sh.mu.within, v.sum)
	}
	sh.mu.gone++
	sh.mu.spare = v.name[:0]
	return v.ref
}

// expireShelter lets go of values that are old enough.
func (s *Store) expireShelter() {
	sh := &s.shelter
	sh.expiring.Lock()
	defer sh.expiring.Unlock()
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

// closeShelter lets go of all values. The timer lets go of none after it.
func (s *Store) closeShelter() {
	sh := &s.shelter
	sh.expiring.Lock()
	defer sh.expiring.Unlock()
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
