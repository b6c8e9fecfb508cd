package index

import "maps"

// claim is one block that a worker with a time to live was said to have, in one
// medium. It stands apart from the tree, as most workers have events.
type claim struct {
	key     uint64
	element element // its mask has one bit
}

// claimBytes is what an entry of a map of claims takes, about.
const claimBytes = 48

// disclaim removes the claims of all media of an element.
func (s *Shard) disclaim(key uint64, e element) {
	for m := range Media {
		if bit := mask(1 << m); e.mask()&bit != 0 {
			delete(s.mu.claims, claim{key, e.column().with(bit)})
		}
	}
}

// Expire forgets blocks that were not said again within the time to live of workers that
// have one, and returns how many blocks that were, each for each medium. It looks
// at all of their blocks, so a tenth of the shortest time to live is often enough.
func (x *Index) Expire() int {
	sum := 0
	for _, s := range *x.shards.Load() {
		sum += s.expire()
	}
	return sum
}

func (s *Shard) expire() int {
	s.mu.Lock()
	defer s.end()
	r, now := s.index.workers.Load(), s.index.seconds()
	count := 0
	for c, said := range maps.All(s.mu.claims) {
		slot := c.element.column().slot()
		m := &r.members[slot]
		if now-said < m.ttl {
			continue
		}
		w := writer{Shard: s, t: s.tree.Load(), member: m, column: c.element.column()}
		if n := w.t.table.get(c.key); n != 0 && w.lose(n, c.element.mask()) {
			count++
		}
		s.count(slot, w.gained)
	}
	s.mu.expired += int64(count)
	return count
}
