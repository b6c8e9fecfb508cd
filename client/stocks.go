package client

import (
	"sync"

	"github.com/kvstored/kvstored/internal/wire"
)

// stocks are those of the Writers of a Client. A Writer that is idle keeps its stock; a
// reservation of the Client that finds no room has all of them given back, and asks once
// more. The mutex may be held where that of the link is taken.
type stocks struct {
	mu struct {
		sync.Mutex
		full  map[*stock]struct{} // with slots that no chunk has; the mutex guards their fields too
		given uint64              // how often slots were given back
	}
}

// put makes slots of a fill those of t.
func (s *stocks) put(t *stock, f *Fill) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.fill, t.next, t.last = f, 0, f.Len()
	s.note(t)
}

// begin is the slot of t for a chunk that is being written from now on; end follows. It
// reports false where t has none.
func (s *stocks) begin(t *stock) (f *Fill, slot int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.writing = t.next < t.last
	return t.fill, t.next, t.writing
}

// end says whether the chunk has the slot, and if so whether it was the last one.
func (s *stocks) end(t *stock, written bool) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.writing = false
	if written {
		t.next++
	}
	s.note(t)
	return t.next == t.last
}

// has reports whether t has a slot.
func (s *stocks) has(t *stock) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.next < t.last
}

// take takes the slots away from t that no chunk has.
func (s *stocks) take(t *stock) (f *Fill, from, to int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, from, to = t.fill, t.next, t.last
	t.fill, t.next, t.last = nil, 0, 0
	s.note(t)
	return f, from, to
}

// note keeps t as long as it has slots; called with the mutex held.
func (s *stocks) note(t *stock) {
	if t.next == t.last {
		delete(s.mu.full, t)
		return
	}
	if s.mu.full == nil {
		s.mu.full = make(map[*stock]struct{})
	}
	s.mu.full[t] = struct{}{}
}

// given is how often slots were given back for a reservation.
func (s *stocks) given() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.given
}

// giveBack has the slots of all stocks aborted ahead of the next request of the link, but
// for those that chunks have. It reports whether any were since given was before: those
// that another reservation gives back meanwhile are room for this one, too.
func (s *stocks) giveBack(l *link, before uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spare(l) {
		s.mu.given++
	}
	return s.mu.given != before
}

// spare is giveBack with the mutex held, and reports whether there were any slots.
func (s *stocks) spare(l *link) (some bool) {
	for t := range s.mu.full {
		from := t.next
		if t.writing {
			from++
		}
		if from < t.last {
			some = true
			abort := wire.FillRequest{Fill: t.fill.id, First: uint32(from), Count: uint32(t.last - from)}
			l.later(wire.OpAbort, &abort, wire.EmptyReply{}.Decode)
		}
		t.last = from
		s.note(t)
	}
	return some
}
