package server

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

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
