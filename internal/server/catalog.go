package server

import (
	"maps"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/internal/lean"
	"github.com/kvstored/kvstored/key"
)

// The bounds of what catalog remembers: some thousand spaces that are closed, and as many
// that are open.
const (
	maxCatalogBytes   = 2 << 20 // of all
	maxShelfBytes     = 1 << 20 // of those that are closed
	catalogEntryBytes = 512     // a space's share of the map, and an openedSpace
)

// catalog is what the ids of spaces stand for, and how many connections have
// them open: nothing that is stored tells. A space that a connection has open is
// remembered before those that none has, of which the one closed the longest
// ago is forgotten first. Where those that are open do not fit, the last to come
// are only counted; that takes less than what their connections keep of them.
type catalog struct {
	mu struct {
		sync.Mutex
		opened map[key.SpaceID]*openedSpace
		peak   int // of opened
		bytes  int // of those of opened that are remembered
		closed shelf
	}
}

// openedSpace is a space that connections have open.
type openedSpace struct {
	space       key.Space // without its salt
	bytes       int       // 0: it is not remembered, only counted
	connections uint32
	model       *modelCount
}

// open notes that one more connection has the space open, and reports whether its
// identity was not known and now is.
func (c *catalog) open(id key.SpaceID, space key.Space, model *modelCount) (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.known(id)
	o := c.mu.opened[id]
	if o == nil {
		o = &openedSpace{model: model}
		c.mu.opened[id] = o
		c.mu.closed.take(id)
	}
	o.connections++
	if o.bytes == 0 {
		c.remember(o, space.WithoutSalt())
	}
	return !known && o.bytes > 0
}

// remember keeps the identity of a space if there is room, or room can be made.
func (c *catalog) remember(o *openedSpace, space key.Space) {
	n := catalogEntryBytes + textBytes(&space)
	if c.mu.bytes+n > maxCatalogBytes {
		return
	}
	o.space, o.bytes = space, n
	c.mu.bytes += n
	c.mu.closed.trim(maxCatalogBytes - c.mu.bytes)
}

// close ends what open began.
func (c *catalog) close(id key.SpaceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.mu.opened[id]
	if o.connections--; o.connections > 0 {
		return
	}
	lean.Delete(&c.mu.opened, id, &c.mu.peak)
	if o.bytes > 0 {
		c.mu.bytes -= o.bytes
		c.mu.closed.put(id, &o.space)
		c.mu.closed.trim(min(maxShelfBytes, maxCatalogBytes-c.mu.bytes))
	}
}

// known is the identity of a space, where that is remembered. Called with the mutex
// held.
func (c *catalog) known(id key.SpaceID) (key.Space, bool) {
	if o := c.mu.opened[id]; o != nil {
		return o.space, o.bytes > 0
	}
	return c.mu.closed.get(id)
}

// model is the counters of a space's model.
func (s *Server) model(id key.SpaceID) *modelCount {
	s.catalog.mu.Lock()
	defer s.catalog.mu.Unlock()
	if o := s.catalog.mu.opened[id]; o != nil && o.model != nil {
		return o.model
	}
	return &s.models.others
}

// space is the identity of a space by its id; the zero Space if it is not known.
func (c *catalog) space(id key.SpaceID) key.Space {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, _ := c.known(id)
	return s
}

// Models are the models of the spaces that are known: the ones that connections have
// open, and some thousand that were open before.
func (s *Server) Models() map[key.SpaceID]string {
	models := make(map[key.SpaceID]string)
	for _, id := range s.catalog.ids() {
		if model := s.catalog.space(id).Model; model != "" {
			models[id] = model
		}
	}
	return models
}

// ids lists the spaces.
func (c *catalog) ids() []key.SpaceID {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := make([]key.SpaceID, 0, len(c.mu.opened)+len(c.mu.closed.at))
	ids = slices.AppendSeq(ids, maps.Keys(c.mu.opened))
	return slices.AppendSeq(ids, maps.Keys(c.mu.closed.at))
}

// describe adds the identity of its space to u, and returns how many bytes of
// text that has.
func (c *catalog) describe(u *SpaceUse) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.mu.opened[u.ID]; o != nil {
		u.Connections = o.connections
	}
	if s, ok := c.known(u.ID); ok {
		u.Opened, u.Space = true, s
	}
	return textBytes(&u.Space)
}

func textBytes(s *key.Space) int {
	n := len(s.Model) + len(s.Revision) + len(s.LoRA) + len(s.DType) + len(s.Method) + len(s.Group)
	for _, t := range s.Tags {
		n += len(t.Name) + len(t.Value) + 32 // and the headers of both
	}
	return n
}

// Describe is what the id of a space stands for, without its salt; false if no client
// has opened it, nor is it a front end's, which is described by nothing.
func (s *Server) Describe(id key.SpaceID) (key.Space, bool) {
	if _, front := s.o.Fronts[id]; front {
		return key.Space{}, true
	}
	s.catalog.mu.Lock()
	defer s.catalog.mu.Unlock()
	return s.catalog.known(id)
}
