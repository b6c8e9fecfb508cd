package server

import (
	"cmp"
	"container/list"
	"context"
	"encoding/hex"
	"maps"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
)

const (
	// maxCatalogBytes bounds what catalog remembers: some thousand spaces, or fewer whose
	// texts are long.
	maxCatalogBytes = 16 << 20
	// spaceBytes is what a space has besides its texts: the parts of two pages of the heap that
	// it may keep alive among what was allocated beside it.
	spaceBytes = 4 << 10
)

// catalog is what the ids of spaces stand for, and how many connections have
// them open: nothing that is stored tells. A space that a connection has open is
// remembered before those that none has, of which the one closed the longest
// ago is forgotten first. Where those that are open do not fit, of the last to come
// only the names of their models are kept; their connections are charged for these.
type catalog struct {
	mu struct {
		sync.Mutex
		spaces map[key.SpaceID]*listedSpace
		peak   int       // of spaces
		bytes  int       // of what is remembered
		closed list.List // of the ids that are remembered and not open: first the one to be forgotten
	}
}

// listedSpace is a space that connections have open, or that is remembered.
type listedSpace struct {
	connections uint32
	model       *modelCount
	name        string        // of the model: rights are judged by it
	space       *key.Space    // nil: it is not remembered
	at          *list.Element // in closed; nil while it is open
}

// bytes is what remembering it takes, at most. Texts count for more, so that those of all
// spaces fit a push of events: see wire.EventsBytes.
func (s *listedSpace) bytes() int { return spaceBytes + 4*textBytes(s.space) }

func newCatalog() *catalog {
	c := new(catalog)
	c.mu.spaces = make(map[key.SpaceID]*listedSpace)
	return c
}

// open notes that one more connection has the space open, and reports whether its
// identity was not known and now is.
func (c *catalog) open(id key.SpaceID, space key.Space, model *modelCount) (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mu.spaces[id]
	if s == nil {
		s = new(listedSpace)
		c.mu.spaces[id] = s
	}
	if s.at != nil {
		c.mu.closed.Remove(s.at)
		s.at = nil
	}
	s.connections, s.model, s.name = s.connections+1, model, space.Model
	if s.space != nil {
		return false
	}
	s.space = new(space.WithoutSalt())
	for c.mu.bytes += s.bytes(); c.mu.bytes > maxCatalogBytes; {
		oldest := c.mu.closed.Front()
		if oldest == nil {
			c.mu.bytes -= s.bytes()
			s.space = nil
			return false
		}
		forgotten := c.mu.closed.Remove(oldest).(key.SpaceID)
		c.mu.bytes -= c.mu.spaces[forgotten].bytes()
		base.Delete(&c.mu.spaces, forgotten, &c.mu.peak)
	}
	return true
}

// close ends what open began.
func (c *catalog) close(id key.SpaceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s := c.mu.spaces[id]; {
	case s.connections > 1:
		s.connections--
	case s.space == nil:
		base.Delete(&c.mu.spaces, id, &c.mu.peak)
	default:
		s.connections, s.model, s.at = 0, nil, c.mu.closed.PushBack(id)
	}
}

// model is the counters of a space's model.
func (s *Server) model(id key.SpaceID) *modelCount {
	return cmp.Or(s.catalog.listed(id).model, &s.models.others)
}

// listed is the entry of a space; an empty one unless it is open or remembered.
func (c *catalog) listed(id key.SpaceID) (s listedSpace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.mu.spaces[id]; at != nil {
		s = *at
	}
	return s
}

// space is the identity of a space by its id; the zero Space if it is not known.
func (c *catalog) space(id key.SpaceID) key.Space {
	if s := c.listed(id); s.space != nil {
		return *s.space // which nothing changes
	}
	return key.Space{}
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

// Title is a space as people tell it from others: by model, adapter and salt. Ranks and
// groups of one engine have one.
func (s *Server) Title(id key.SpaceID) string {
	if front := s.o.Fronts[id]; front != "" {
		return front
	}
	space := s.catalog.space(id)
	if space.Model == "" {
		return "(others)"
	}
	title := labelOf(space.Model)
	if space.LoRA != "" {
		title += " " + labelOf(space.LoRA)
	}
	if space.SaltDigest != (key.Hash{}) {
		title += " salt " + hex.EncodeToString(space.SaltDigest[:2])
	}
	return title
}

// ids lists the spaces.
func (c *catalog) ids() []key.SpaceID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.mu.spaces))
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
	space := s.catalog.space(id)
	return space, space.Model != ""
}

// naming has the events of a space told again once its identity is known, and where it is
// distrusted or trusted: then its chunks are gone, or there again. The chunks that a start
// finds were told under an id alone, which says nothing to a router, and not at all to a
// user that may read that model only.
type naming struct {
	server *Server
	wake   chan struct{} // capacity 1
	mu     struct {
		sync.Mutex
		waiting map[key.SpaceID]struct{} // of which something is stored
	}
}

// add notes a space that is to be told again. One of which nothing is stored is passed
// over: what comes is told with its identity, and a client that opens very many such
// spaces has nothing announced.
func (n *naming) add(id key.SpaceID) {
	if n.server.o.Events == nil || !n.server.o.Store.Operator.Knows(id) {
		return
	}
	n.mu.Lock()
	if n.mu.waiting == nil {
		n.mu.waiting = make(map[key.SpaceID]struct{})
	}
	n.mu.waiting[id] = struct{}{}
	n.mu.Unlock()
	base.Poke(n.wake)
}

// take takes out what waits.
func (n *naming) take() (ids map[key.SpaceID]struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ids, n.mu.waiting = n.mu.waiting, nil
	return ids
}

// run announces until ctx ends.
func (n *naming) run(ctx context.Context) {
	for base.Await(ctx, n.wake) {
		for id := range n.take() {
			_ = n.server.o.Store.Operator.Announce(ctx, id) // it fails as ctx ends
		}
	}
}
