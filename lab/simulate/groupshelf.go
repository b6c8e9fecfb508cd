package simulate

import "github.com/kvstored/kvstored/policy"

// groupShelf is a tier of a family.
type groupShelf struct {
	*family
	policy   policy.Policy
	leaver   policy.Leaver  // policy, if it is one
	renewer  policy.Renewer // likewise
	capacity int64          // bytes
	used     int64
	below    *groupShelf // gets what is evicted; nil: it is lost
	full     bool        // it has evicted something

	in     []bool   // by piece: resident
	reused []bool   // by piece: a request has used it since it came
	kids   []uint32 // by block: how many blocks after it have their full piece
	coming []uint32 // pieces of the request at hand that are not resident yet
	cold   []uint32 // dead pieces, the next to go first; some are dead no more
	later  []uint32 // of those, what the request at hand uses
}

func newGroupShelf(f *family, capacity int64, p policy.Policy) *groupShelf {
	n := len(f.users)
	s := &groupShelf{
		family: f, policy: p, capacity: capacity,
		in: make([]bool, n), reused: make([]bool, n), kids: make([]uint32, len(f.cut)),
	}
	s.leaver, _ = p.(policy.Leaver)
	s.renewer, _ = p.(policy.Renewer)
	if p, ok := p.(policy.MetaReader); ok {
		p.ReadMetaFrom(s.told)
	}
	return s
}

func (s *groupShelf) told(id policy.ID) policy.Meta {
	return policy.Meta{Hash: uint64(id) + 1, Size: s.size(uint32(id))}
}

func (s *groupShelf) size(p uint32) int64 { return s.groups[s.group(p)].Bytes }

// admit makes room for a piece that the request at hand brings.
func (s *groupShelf) admit(p uint32) bool {
	if !s.makeRoom(p) {
		return false
	}
	s.used += s.size(p)
	s.users[p] = s.turn
	s.coming = append(s.coming, p)
	return true
}

func (s *groupShelf) makeRoom(p uint32) bool {
	s.policy.Miss(uint64(p)+1, s.size(p))
	for s.used+s.size(p) > s.capacity {
		s.full = true
		if id, found := s.first(); found {
			s.lets(id)
			s.evicted(id)
			continue
		}
		id, found := s.policy.Evict(s.goes)
		if !found {
			return false
		}
		s.evicted(uint32(id))
	}
	return true
}

// goes reports whether a piece can be evicted now.
func (s *groupShelf) goes(id policy.ID) bool {
	p := uint32(id)
	return s.users[p] != s.turn && (s.keep == Keys || s.group(p) > 0 || s.kids[s.block(p)] == 0)
}

// evicted ends the residency of a piece that the policy has forgotten. With the last
// copy of a full one those of the other groups go that stand on it.
func (s *groupShelf) evicted(p uint32) {
	s.in[p], s.reused[p] = false, false
	s.used -= s.size(p)
	if s.below != nil && !s.below.in[p] {
		s.below.put(p)
	}
	s.alive.changed(p)
	if s.group(p) > 0 || s.keep == Keys {
		return
	}
	b := s.block(p)
	if !s.has(p) {
		for _, other := range s.shelves {
			other.cascade(b)
		}
	}
	if up := s.trace.parents[b]; up != 0 {
		if s.kids[up-1]--; s.kids[up-1] == 0 && s.in[s.piece(up-1, 0)] {
			q := s.piece(up-1, 0)
			if s.users[q] != s.turn {
				s.policy.Allow(policy.ID(q))
			}
			s.offer(q)
		}
	}
}

// cascade drops what stands on the full piece of a block.
func (s *groupShelf) cascade(b uint32) {
	for g := 1; g < len(s.groups); g++ {
		if q := s.piece(b, g); s.in[q] {
			s.lets(q)
			s.in[q], s.reused[q] = false, false
			s.used -= s.size(q)
			s.alive.changed(q)
		}
	}
}

// lets has the policy forget a piece that goes though it is not the policy's choice.
func (s *groupShelf) lets(p uint32) {
	if s.leaver != nil {
		s.leaver.Leave(policy.ID(p))
	} else {
		s.policy.Remove(policy.ID(p))
	}
}

// put stores a piece of the shelf above, and makes the full ones before it as young as it is.
func (s *groupShelf) put(p uint32) {
	if !s.makeRoom(p) {
		return
	}
	s.used += s.size(p)
	s.add(p)
	s.policy.Add(policy.ID(p), s.told(policy.ID(p)))
	for up := s.trace.parents[s.block(p)]; s.group(p) == 0 && up != 0 && s.renewer != nil; up = s.trace.parents[up-1] {
		if q := s.piece(up-1, 0); s.in[q] {
			s.renewer.Renew(policy.ID(q))
		}
	}
	s.offer(p)
}

// add makes a piece resident, for which there is room.
func (s *groupShelf) add(p uint32) {
	s.in[p] = true
	if up := s.trace.parents[s.block(p)]; s.group(p) == 0 && up != 0 {
		s.kids[up-1]++
	}
}

// enter makes what is coming resident and tells the policy of the request, its tail
// first: so its head is younger, as it is in the daemon.
func (s *groupShelf) enter(blocks []uint32) {
	fresh := make(map[uint32]bool, len(s.coming))
	for _, p := range s.coming {
		fresh[p] = true
		s.add(p)
	}
	for _, p := range s.coming {
		s.alive.changed(p)
	}
	for i := len(s.coming) - 1; i >= 0; i-- { // what has no need of its own yet
		s.offer(s.coming[i])
	}
	for i := len(blocks) - 1; i >= 0; i-- {
		for g := range s.groups {
			p := s.piece(blocks[i], g)
			switch {
			case fresh[p]:
				s.policy.Add(policy.ID(p), s.told(policy.ID(p)))
			case s.in[p] && s.users[p] == s.turn:
				s.reused[p] = true
				s.policy.Touch(policy.ID(p))
			}
		}
	}
	for _, p := range s.coming {
		if s.below != nil && !s.below.full && !s.below.in[p] {
			s.below.put(p)
		}
	}
	s.coming = s.coming[:0]
}

// dead reports whether a piece goes before any that the policy would choose.
func (s *groupShelf) dead(p uint32) bool {
	return s.in[p] && s.alive.count[p] == 0 && (s.group(p) > 0 || !s.reused[p])
}

// offer puts a piece among the cold ones if it is dead.
func (s *groupShelf) offer(p uint32) {
	if s.keep == Dead && s.dead(p) {
		s.cold = append(s.cold, p)
	}
}

// first takes out the next dead piece that may go.
func (s *groupShelf) first() (p uint32, found bool) {
	for len(s.cold) > 0 {
		p, s.cold = s.cold[0], s.cold[1:]
		switch {
		case !s.dead(p), s.leaver != nil && s.leaver.Proven(policy.ID(p)):
		case s.users[p] == s.turn:
			s.later = append(s.later, p)
		case s.group(p) > 0 || s.kids[s.block(p)] == 0:
			return p, true // else it is offered again when its last kid goes
		}
	}
	return 0, false
}
