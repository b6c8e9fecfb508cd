package server

import "sync"

// shared are the jobs that every connection of their user may name. The mutex is a leaf.
type shared struct {
	mu struct {
		sync.Mutex
		jobs map[uint64]*job
	}
}

func newShared() *shared {
	s := new(shared)
	s.mu.jobs = make(map[uint64]*job)
	return s
}

func (s *shared) add(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.jobs[j.id] = j
}

// remove forgets a job; one that is not shared is not there.
func (s *shared) remove(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.jobs, id)
}

// drop forgets all that a connection had.
func (s *shared) drop(jobs map[uint64]*job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range jobs {
		delete(s.mu.jobs, id)
	}
}

func (s *shared) of(id uint64, uid uint32) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.mu.jobs[id]; j != nil && j.session.uid == uid {
		return j
	}
	return nil
}

// held finds a fill of the connection, or a job that it may name: its own, or one that
// another connection of its user shares.
func (c *session) held(id uint64) (*job, *fill) {
	c.mu.Lock()
	j, f := c.mu.jobs[id], c.mu.fills[id]
	c.mu.Unlock()
	if j != nil || f != nil {
		return j, f
	}
	return c.server.shared.of(id, c.uid), nil
}
