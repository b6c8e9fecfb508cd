package server

import (
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/fair"
)

// CountPlaces gives a server without connections a gate of one place, and returns
// how often that is taken.
func (s *Server) CountPlaces() *atomic.Int64 {
	taken := new(atomic.Int64)
	s.users.mu.Lock()
	defer s.users.mu.Unlock()
	s.users.gate = fair.NewGate(1, fair.Machine{Busy: func(change int) { taken.Add(int64(change)) }})
	return taken
}

// CountEntries is CountPlaces that never counts down.
func (s *Server) CountEntries() *atomic.Int64 {
	entries := new(atomic.Int64)
	s.users.mu.Lock()
	defer s.users.mu.Unlock()
	s.users.gate = fair.NewGate(1, fair.Machine{Busy: func(change int) { entries.Add(int64(max(0, change))) }})
	return entries
}

// LoadPlaces is how many chunks may come up at a time for one user, and LoadsUnderWay how
// many do for all users.
func (s *Server) LoadPlaces() int { return maxLoads }

func (s *Server) LoadsUnderWay() (n int) {
	s.users.mu.Lock()
	defer s.users.mu.Unlock()
	for _, u := range s.users.mu.byID {
		n += len(u.loads)
	}
	return n
}
