package server

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

const (
	// shelfHeader is an id and the length of the text.
	shelfHeader = len(key.SpaceID{}) + 4
	// shelfMapBytes is a space's share of the map.
	shelfMapBytes = 48
	leastShelf    = 16 << 10
)

// shelf is identities of spaces in the order in which they were closed. All lie in one
// piece of memory: as values of their own they would lie scattered among what was
// allocated and freed beside them, and each keep a page of the heap alive. The zero
// shelf is empty.
type shelf struct {
	at    map[key.SpaceID]int // where in log
	log   []byte              // header and text of one after the other; those that at does not name are gone
	first int                 // in log, where the oldest may be
	live  int                 // bytes of log that at names
}

// put adds a space that is not there, as the last one closed.
func (s *shelf) put(id key.SpaceID, space *key.Space) {
	text := (&wire.OpenSpaceRequest{Space: *space}).Append(nil)
	if n := shelfHeader + len(text); len(s.log)+n > cap(s.log) {
		s.tidy(n)
	}
	s.at[id] = len(s.log)
	s.log = append(s.log, id[:]...)
	s.log = binary.LittleEndian.AppendUint32(s.log, uint32(len(text)))
	s.log = append(s.log, text...)
	s.live += shelfHeader + len(text)
}

// bytes is what all take, but for room.
func (s *shelf) bytes() int { return s.live + shelfMapBytes*len(s.at) }

// tidy moves all into memory that has room for n bytes more, and a quarter more than that.
func (s *shelf) tidy(n int) {
	old := *s
	s.log, s.first = make([]byte, 0, max((s.live+n)*5/4, leastShelf)), 0
	s.at = make(map[key.SpaceID]int, len(old.at))
	for at := old.first; at < len(old.log); {
		id, text := old.entry(at)
		end := at + shelfHeader + len(text)
		if old.holds(id, at) {
			s.at[id] = len(s.log)
			s.log = append(s.log, old.log[at:end]...)
		}
		at = end
	}
}

// entry is what lies at a place of the log.
func (s *shelf) entry(at int) (id key.SpaceID, text []byte) {
	b := s.log[at:]
	b = b[copy(id[:], b):]
	return id, b[4 : 4+binary.LittleEndian.Uint32(b)]
}

// holds reports whether what lies there of a space is not gone.
func (s *shelf) holds(id key.SpaceID, at int) bool {
	place, ok := s.at[id]
	return ok && place == at
}

// get is a space, if it is there.
func (s *shelf) get(id key.SpaceID) (key.Space, bool) {
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
func (s *shelf) take(id key.SpaceID) {
	at, ok := s.at[id]
	if !ok {
		return
	}
	_, text := s.entry(at)
	delete(s.at, id)
	s.live -= shelfHeader + len(text)
	if s.live == 0 {
		*s = shelf{}
	}
}

// trim removes those closed the longest ago, until all take so many bytes at most.
func (s *shelf) trim(most int) {
	for s.bytes() > most {
		id, text := s.entry(s.first)
		at := s.first
		s.first += shelfHeader + len(text)
		if s.holds(id, at) {
			s.take(id)
		}
	}
}
