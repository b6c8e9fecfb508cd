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
	s.users.gate = fair.NewGate(1, func(change int) { taken.Add(int64(change)) })
	return taken
}
