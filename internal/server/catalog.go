package server

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// maxCatalogBytes bounds what catalog remembers: some thousand spaces.
const maxCatalogBytes = 2 << 20

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
		names  spaceLog
	}
}

// openedSpace is a space that connections have open.
type openedSpace struct {
	connections uint32
	model       *modelCount
}

// open notes that one more connection has the space open, and reports whether its
// identity was not known and now is.
func (c *catalog) open(id key.SpaceID, space key.Space, model *modelCount) (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.mu.opened[id]
	if o == nil {
		o = &openedSpace{model: model}
		c.mu.opened[id] = o
	}
	o.connections++
	if _, known := c.mu.names.at[id]; known {
		return false
	}
	space = space.WithoutSalt()
	c.mu.names.put(id, &space)
	c.mu.names.trim(maxCatalogBytes, c.isOpen)
	if c.mu.names.bytes() > maxCatalogBytes {
		c.mu.names.take(id)
		return false
	}
	return true
}

// isOpen reports whether a connection has a space open. Called with the mutex held.
func (c *catalog) isOpen(id key.SpaceID) bool { return c.mu.opened[id] != nil }

// close ends what open began.
func (c *catalog) close(id key.SpaceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.mu.opened[id]
	if o.connections--; o.connections > 0 {
		return
	}
	base.Delete(&c.mu.opened, id, &c.mu.peak)
	c.mu.names.renew(id)
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
	s, _ := c.mu.names.get(id)
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
	ids := slices.Collect(maps.Keys(c.mu.names.at))
	for id := range c.mu.opened {
		if _, known := c.mu.names.at[id]; !known {
			ids = append(ids, id)
		}
	}
	return ids
}

// describe adds the identity of its space to u, and returns how many bytes of
// text that has.
func (c *catalog) describe(u *SpaceUse) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.mu.opened[u.ID]; o != nil {
		u.Connections = o.connections
	}
	if s, ok := c.mu.names.get(u.ID); ok {
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
	return s.catalog.mu.names.get(id)
}

// maxNaming bounds the spaces that wait to be announced; beyond it all are.
const maxNaming = 1024

// naming has the events of a space told again once its identity is known, and where it is
// distrusted or trusted: then its chunks are gone, or there again. The chunks that a start
// finds were told under an id alone, which says nothing to a router, and not at all to a
// user that may read that model only.
type naming struct {
	server *Server
	wake   chan struct{} // capacity 1
	mu     struct {
		sync.Mutex
		waiting []key.SpaceID
		all     bool // there were more
	}
}

// add notes a space that is to be told again. One of which nothing is stored is passed
// over: what comes is told with its identity, and a client that opens very many such
// spaces has nothing announced.
func (n *naming) add(id key.SpaceID) {
	if n.server.o.Events == nil || !n.server.o.Stack.Knows(id) {
		return
	}
	n.mu.Lock()
	if n.mu.all = n.mu.all || len(n.mu.waiting) >= maxNaming; !n.mu.all {
		n.mu.waiting = append(n.mu.waiting, id)
	}
	n.mu.Unlock()
	base.Poke(n.wake)
}

// take takes out what waits.
func (n *naming) take() (ids []key.SpaceID, all bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ids, all = n.mu.waiting, n.mu.all
	n.mu.waiting, n.mu.all = nil, false
	return ids, all
}

// run announces until ctx ends.
func (n *naming) run(ctx context.Context) {
	for base.Await(ctx, n.wake) {
		ids, all := n.take()
		if all {
			ids = nil
			_ = n.server.o.Stack.Announce(ctx, nil) // it fails as ctx ends
		}
		for _, id := range ids {
			_ = n.server.o.Stack.Announce(ctx, &id)
		}
	}
}

const (
	// spaceHeader is an id and the length of the text.
	spaceHeader = len(key.SpaceID{}) + 4
	// spaceMapBytes is a space's share of the map.
	spaceMapBytes = 48
	leastSpaceLog = 16 << 10
)

// spaceLog is identities of spaces, in the order in which they were put or renewed. All lie
// in one piece of memory: as values of their own they would lie scattered among what was
// allocated and freed beside them, and each keep a page of the heap alive. The zero
// spaceLog is empty.
type spaceLog struct {
	at    map[key.SpaceID]int // where in log
	log   []byte              // header and text of one after the other; those that at does not name are gone
	first int                 // in log: those before it are not to go
	live  int                 // bytes of log that at names
}

// put adds a space that is not there.
func (s *spaceLog) put(id key.SpaceID, space *key.Space) {
	s.append(id, (&wire.OpenSpaceRequest{Space: *space}).Append(nil))
}

// renew makes a space, if it is there, the last one.
func (s *spaceLog) renew(id key.SpaceID) {
	if at, ok := s.at[id]; ok {
		_, text := s.entry(at)
		s.take(id)
		s.append(id, text)
	}
}

func (s *spaceLog) append(id key.SpaceID, text []byte) {
	if n := spaceHeader + len(text); len(s.log)+n > cap(s.log) {
		s.tidy(n)
	}
	s.at[id] = len(s.log)
	s.log = append(s.log, id[:]...)
	s.log = binary.LittleEndian.AppendUint32(s.log, uint32(len(text)))
	s.log = append(s.log, text...)
	s.live += spaceHeader + len(text)
}

// bytes is what all take, but for room.
func (s *spaceLog) bytes() int { return s.live + spaceMapBytes*len(s.at) }

// tidy moves all into memory that has room for n bytes more, and a quarter more than that.
func (s *spaceLog) tidy(n int) {
	old := *s
	s.log, s.first = make([]byte, 0, max((s.live+n)*5/4, leastSpaceLog)), 0
	s.at = make(map[key.SpaceID]int, len(old.at))
	for at := 0; at < len(old.log); {
		id, text := old.entry(at)
		end := at + spaceHeader + len(text)
		if old.holds(id, at) {
			s.at[id] = len(s.log)
			s.log = append(s.log, old.log[at:end]...)
		}
		at = end
	}
}

// entry is what lies at a place of the log.
func (s *spaceLog) entry(at int) (id key.SpaceID, text []byte) {
	b := s.log[at:]
	b = b[copy(id[:], b):]
	return id, b[4 : 4+binary.LittleEndian.Uint32(b)]
}

// holds reports whether what lies there of a space is not gone.
func (s *spaceLog) holds(id key.SpaceID, at int) bool {
	place, ok := s.at[id]
	return ok && place == at
}

// get is a space, if it is there.
func (s *spaceLog) get(id key.SpaceID) (key.Space, bool) {
	at, ok := s.at[id]
	if !ok {
		return key.Space{}, false
	}
	_, text := s.entry(at)
	var m wire.OpenSpaceRequest
	err := m.Decode(text)
	return m.Space, err == nil
}

// take removes a space, if it is there.
func (s *spaceLog) take(id key.SpaceID) {
	at, ok := s.at[id]
	if !ok {
		return
	}
	_, text := s.entry(at)
	delete(s.at, id)
	s.live -= spaceHeader + len(text)
	if s.live == 0 {
		*s = spaceLog{}
	}
}

// trim removes the oldest of those that are not spared, until all take so many bytes at
// most. One that is spared is renewed before it is no more.
func (s *spaceLog) trim(most int, spared func(key.SpaceID) bool) {
	for s.bytes() > most && s.first < len(s.log) {
		at := s.first
		id, text := s.entry(at)
		s.first += spaceHeader + len(text)
		if s.holds(id, at) && !spared(id) {
			s.take(id)
		}
	}
}
