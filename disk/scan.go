package disk

import (
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/key"
)

// scan is the state of the recovery.
type scan struct {
	active  atomic.Bool // there may be records that the ledger does not have yet
	records atomic.Uint64
	lost    atomic.Uint64 // records dropped: damaged, pointing nowhere, overwritten
	damaged atomic.Uint64 // lost records that were damaged
	newer   atomic.Uint64 // records of a newer program, passed over
	evicted atomic.Uint64 // entries dropped because the capacity is smaller now
	mu      struct {
		sync.Mutex
		deleted map[key.Key]struct{} // while active: the scan must not bring them back
		stored  []key.Key            // while active, in order: they are younger than the entries it brings
	}
}

// addStored remembers that k was stored while the scan went on.
func (s *scan) addStored(k key.Key) {
	if !s.active.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stored = append(s.mu.stored, k)
}

// end ends the scan, and returns the keys stored while it went on.
func (s *scan) end() (stored []key.Key) {
	s.active.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	stored = s.mu.stored
	s.mu.deleted, s.mu.stored = nil, nil
	return stored
}

func (s *scan) addDeleted(k key.Key) {
	if !s.active.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.deleted == nil {
		s.mu.deleted = make(map[key.Key]struct{})
	}
	s.mu.deleted[k] = struct{}{}
}

func (s *scan) isDeleted(k key.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, is := s.mu.deleted[k]
	return is
}

// deletions is how many keys were deleted since it began.
func (s *scan) deletions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.deleted)
}

// unlessForgotten runs fn so that a deletion of k comes wholly before or after.
func (s *scan) unlessForgotten(k key.Key, fn func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, is := s.mu.deleted[k]; is {
		return false
	}
	return fn()
}
