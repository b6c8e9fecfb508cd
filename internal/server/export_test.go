package server

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
