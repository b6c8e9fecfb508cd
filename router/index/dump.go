package index

import "slices"

// Held is one block and who has it.
type Held struct {
	Hash    uint64
	Parent  Parent
	Holders []Holder // in the order of [Index.Workers]; none where only later blocks are held
}

// Holder is a worker that has a block, in which media.
type Holder struct {
	Worker Worker
	Media  []Medium
}

// Dump returns at most so many blocks, parents before those that stand on them. It
// is for people and tests: changes of the shard wait while it is made.
func (s *Shard) Dump(limit int) []Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, r := s.tree.Load(), s.index.workers.Load()
	all := make([]Held, 0, min(limit, t.blocks.count))
	t.walk(func(n uint32, _ int) {
		if len(all) == limit {
			return
		}
		b := t.blocks.at(n)
		h := Held{Hash: b.key.Load()}
		if b.parent() != root {
			h.Parent = After(t.blocks.key(b.parent()))
		}
		t.sets.scratch = t.sets.all(t.sets.scratch[:0], b.own)
		for _, e := range t.sets.scratch {
			h.Holders = h.add(r.members[e.column().slot()].Worker, e.mask())
		}
		all = append(all, h)
	})
	return all
}

// add returns the holders with a worker's media; its groups follow each other.
func (h *Held) add(w Worker, has mask) []Holder {
	all := h.Holders
	if n := len(all); n == 0 || all[n-1].Worker != w {
		all = append(all, Holder{Worker: w})
	}
	last := &all[len(all)-1]
	for m := range Medium(Media) {
		if has&(1<<m) != 0 && !slices.Contains(last.Media, m) {
			last.Media = append(last.Media, m)
		}
	}
	return all
}
