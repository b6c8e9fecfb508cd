package server

import "sync"

// shared are the jobs and fills that every connection of their user may name. The
// mutex is a leaf.
type shared struct {
	mu struct {
		sync.Mutex
		jobs  map[uint64]*job
		fills map[uint64]*fill
	}
}

func newShared() *shared {
	s := new(shared)
	s.mu.jobs, s.mu.fills = make(map[uint64]*job), make(map[uint64]*fill)
	return s
}

func (s *shared) addJob(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.jobs[j.id] = j
}

func (s *shared) addFill(f *fill) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.fills[f.id] = f
}

// remove forgets a job or fill; one that is not shared is not there.
func (s *shared) remove(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.jobs, id)
	delete(s.mu.fills, id)
}

// drop forgets all that a connection had.
func (s *shared) drop(jobs map[uint64]*job, fills map[uint64]*fill) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range jobs {
		delete(s.mu.jobs, id)
	}
	for id := range fills {
		delete(s.mu.fills, id)
	}
}

func (s *shared) of(id uint64, uid uint32) (*job, *fill) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, f := s.mu.jobs[id], s.mu.fills[id]
	if j != nil && j.session.uid != uid {
		j = nil
	}
	if f != nil && f.session.uid != uid {
		f = nil
	}
	return j, f
}

// held finds a job or fill that the connection may name: its own, or one that another
// connection of its user shares.
func (c *session) held(id uint64) (*job, *fill) {
	c.mu.Lock()
	j, f := c.mu.jobs[id], c.mu.fills[id]
	c.mu.Unlock()
	if j != nil || f != nil {
		return j, f
	}
	return c.server.shared.of(id, c.uid)
}
