package server

import (
	"container/list"
	"maps"
	"sync"

	"github.com/kvstored/kvstored/key"
)

// maxCatalogBytes bounds the memory of what catalog remembers: some thousand
// spaces.
const (
	maxCatalogBytes   = 4 << 20
	catalogEntryBytes = 512 // a space's share of the map, its place in the order and an openedSpace
)

// catalog is what the ids of spaces stand for, and how many connections have
// them open: nothing that is stored tells. A space that a connection has open is
// remembered before those that none has, of which the one closed the longest
// ago is forgotten first. Where those that are open do not fit, the last to come
// are only counted; that takes less than what their connections keep of them.
type catalog struct {
	mu struct {
		sync.Mutex
		spaces map[key.SpaceID]*openedSpace
		most   int       // of spaces, since the map was made
		closed list.List // of *openedSpace without connections, last closed first
		bytes  int       // of what is remembered
	}
}

type openedSpace struct {
	id          key.SpaceID
	space       key.Space // without its salt
	bytes       int       // 0: it is not remembered, only counted
	connections uint32
	place       *list.Element // in closed, while it is there
}

// open notes that one more connection has the space open.
func (c *catalog) open(id key.SpaceID, space key.Space) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.mu.spaces[id]
	if o == nil {
		o = &openedSpace{id: id}
		c.mu.spaces[id] = o
		c.mu.most = max(c.mu.most, len(c.mu.spaces))
	}
	o.connections++
	if o.place != nil {
		c.mu.closed.Remove(o.place)
		o.place = nil
	}
	if o.bytes == 0 {
		c.remember(o, space.WithoutSalt())
	}
}

// remember keeps the identity of a space if there is room, or room can be made.
func (c *catalog) remember(o *openedSpace, space key.Space) {
	n := catalogEntryBytes + textBytes(&space)
	for c.mu.bytes+n > maxCatalogBytes {
		oldest := c.mu.closed.Back()
		if oldest == nil {
			return
		}
		c.forget(oldest.Value.(*openedSpace))
	}
	o.space, o.bytes = space, n
	c.mu.bytes += n
}

// forget drops a space that no connection has open.
func (c *catalog) forget(o *openedSpace) {
	if o.place != nil {
		c.mu.closed.Remove(o.place)
	}
	delete(c.mu.spaces, o.id)
	c.mu.bytes -= o.bytes
	c.shrink()
}

// A map that had more than leastShrink entries is made anew when it has a
// shrinkShare of them left: Go's maps keep the room of all that they ever had.
const (
	leastShrink = 16 << 10
	shrinkShare = 8
)

// shrink makes the map anew where it has become much smaller. Called with the mutex
// held; it takes as long as the deletions since then took together, at most.
func (c *catalog) shrink() {
	if c.mu.most <= leastShrink || len(c.mu.spaces) > c.mu.most/shrinkShare {
		return
	}
	fewer := make(map[key.SpaceID]*openedSpace, len(c.mu.spaces))
	maps.Copy(fewer, c.mu.spaces)
	c.mu.spaces, c.mu.most = fewer, len(fewer)
}

// close ends what open began.
func (c *catalog) close(id key.SpaceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.mu.spaces[id]
	if o.connections--; o.connections > 0 {
		return
	}
	if o.bytes == 0 {
		c.forget(o)
		return
	}
	o.place = c.mu.closed.PushFront(o)
}

// space is the identity of a space by its id; the zero Space if it is not known.
func (c *catalog) space(id key.SpaceID) key.Space {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.mu.spaces[id]; o != nil {
		return o.space
	}
	return key.Space{}
}

// Models are the models of the spaces that are known: the ones that connections have
// open, and some thousand that were open before.
func (s *Server) Models() map[key.SpaceID]string {
	c := &s.catalog
	c.mu.Lock()
	defer c.mu.Unlock()
	models := make(map[key.SpaceID]string, len(c.mu.spaces))
	for id, o := range c.mu.spaces {
		if o.bytes > 0 {
			models[id] = o.space.Model
		}
	}
	return models
}

// ids lists the spaces.
func (c *catalog) ids() []key.SpaceID {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := make([]key.SpaceID, 0, len(c.mu.spaces))
	for id := range c.mu.spaces {
		ids = append(ids, id)
	}
	return ids
}

// describe adds the identity of its space to u, and returns how many bytes of
// text that has.
func (c *catalog) describe(u *SpaceUse) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.mu.spaces[u.ID]
	if o == nil {
		return 0
	}
	u.Connections = o.connections
	if o.bytes > 0 {
		u.Opened, u.Space = true, o.space
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

// Describe is what the id of a space stands for, without its salt; the zero Space
// if no client has opened it.
func (s *Server) Describe(id key.SpaceID) key.Space { return s.catalog.space(id) }
