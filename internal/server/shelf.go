package server

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

const (
	// shelfHeader is an id, the weight of its space, and the length of the text.
	shelfHeader = len(key.SpaceID{}) + 4 + 4
	leastShelf  = 16 << 10
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
	bytes int                 // the weight of all
}

// put adds a space that is not there, as the last one closed. The weight is what the
// owner takes it to cost.
func (s *shelf) put(id key.SpaceID, space *key.Space, weight int) {
	text := (&wire.OpenSpaceRequest{Space: *space}).Append(nil)
	if n := shelfHeader + len(text); len(s.log)+n > cap(s.log) {
		s.tidy(n)
	}
	s.at[id] = len(s.log)
	s.log = append(s.log, id[:]...)
	s.log = binary.LittleEndian.AppendUint32(s.log, uint32(weight))
	s.log = binary.LittleEndian.AppendUint32(s.log, uint32(len(text)))
	s.log = append(s.log, text...)
	s.live += shelfHeader + len(text)
	s.bytes += weight
}

// tidy moves all into memory that has room for n bytes more, and a quarter more than that.
func (s *shelf) tidy(n int) {
	old := *s
	s.log, s.first = make([]byte, 0, max((s.live+n)*5/4, leastShelf)), 0
	s.at = make(map[key.SpaceID]int, len(old.at))
	for at := old.first; at < len(old.log); {
		id, _, text := old.entry(at)
		end := at + shelfHeader + len(text)
		if old.holds(id, at) {
			s.at[id] = len(s.log)
			s.log = append(s.log, old.log[at:end]...)
		}
		at = end
	}
}

// entry is what lies at a place of the log.
func (s *shelf) entry(at int) (id key.SpaceID, weight int, text []byte) {
	b := s.log[at:]
	b = b[copy(id[:], b):]
	weight, n := int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:]))
	return id, weight, b[8 : 8+n]
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
	_, _, text := s.entry(at)
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
	_, weight, text := s.entry(at)
	delete(s.at, id)
	s.live -= shelfHeader + len(text)
	s.bytes -= weight
	if s.live == 0 {
		*s = shelf{}
	}
}

// trim removes those closed the longest ago, until all weigh as much as that at most.
func (s *shelf) trim(most int) {
	for s.bytes > most {
		id, _, text := s.entry(s.first)
		at := s.first
		s.first += shelfHeader + len(text)
		if s.holds(id, at) {
			s.take(id)
		}
	}
}
