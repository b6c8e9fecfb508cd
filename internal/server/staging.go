package server

import (
	"sync"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/extent"
)

// staging is a client's window and who has which part of it. The nil staging,
// of a connection without one, has room for everything at 0.
type staging struct {
	window *arena.Window
	mu     struct {
		sync.Mutex
		room *extent.Allocator
	}
}

func newStaging(n int64) (*staging, error) {
	w, err := arena.NewWindow(n)
	if err != nil {
		return nil, err
	}
	s := &staging{window: w}
	s.mu.room = extent.New(n)
	return s, nil
}

func (s *staging) alloc(n uint32) (int64, bool) {
	if s == nil {
		return 0, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.room.Alloc(int64(n))
}

func (s *staging) free(off int64, n int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.room.Free(off, int64(n))
}
