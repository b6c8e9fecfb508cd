package index

import "slices"

// seek is the search for the longest prefix of each worker of which its groups that
// are not full have what they need. The full ones have been counted before.
type seek struct {
	workers []sought
	content []element
	covers  [2][]element
	looks   [maxSteps]look
}

// sought is one worker. A length is a candidate until a block that it needs is
// missing; then the next shorter one is.
type sought struct {
	slot uint32
	ends [Media]int // candidates, in blocks, one for each medium
	need int        // no candidate needs a block before it
}

// usable finds the longest usable prefix of each worker. The candidates begin at the
// end of the full groups; it goes back block by block, as far as one of them needs.
// It reports false if a block has changed meanwhile.
func (f *finder) usable() bool {
	s, from := &f.seek, 0
	s.start(f)
	defer clear(s.looks[:]) // a tree that was replaced is free to go
	for _, w := range s.workers {
		from = max(from, w.ends[Shared])
	}
	for from > 0 && s.open(from) {
		n := min(from, maxSteps)
		looks := s.looks[:n]
		for i := range looks {
			looks[i] = look{at: from - 1 - i}
		}
		f.lookAt(looks)
		for _, l := range looks {
			if !f.visit(l) {
				return false
			}
		}
		from -= n
	}
	return true
}

// start takes in the workers that have all full groups.
func (s *seek) start(f *finder) {
	groups := f.shard.config.Groups
	full := 0
	for _, g := range groups {
		if g.Kind == Full {
			full++
		}
	}
	s.workers = s.workers[:0]
	for i := 0; i < len(f.all); {
		slot, first := f.all[i].column().slot(), i
		depths := f.depths[i]
		for i++; i < len(f.all) && f.all[i].column().slot() == slot; i++ {
			for m := range depths {
				depths[m] = min(depths[m], f.depths[i][m])
			}
		}
		if i-first < full {
			continue
		}
		w := sought{slot: slot}
		for m, d := range depths {
			w.ends[m] = int(d)
		}
		w.settle(f)
		s.workers = append(s.workers, w)
	}
}

// settle computes how far back the candidates need blocks.
func (w *sought) settle(f *finder) {
	w.need = w.ends[Shared]
	for _, end := range w.ends {
		if end == 0 {
			continue
		}
		for _, g := range f.shard.config.Groups {
			if g.Kind != Full {
				w.need = min(w.need, g.from(end, f.shard.config.BlockTokens))
			}
		}
	}
}

// open reports whether a candidate needs a block before this one.
func (s *seek) open(from int) bool {
	return slices.ContainsFunc(s.workers, func(w sought) bool { return w.need < from })
}

// visit takes the candidates away that need what is not in a block.
func (f *finder) visit(l look) bool {
	s := &f.seek
	s.content = s.content[:0]
	if l.set != empty {
		var same bool
		if s.content, same = l.block.content(s.content, l.word, f.t.sets); !same {
			return false
		}
	}
	i := 0
	for n := range s.workers {
		w := &s.workers[n]
		for i < len(s.content) && s.content[i].column().slot() < w.slot {
			i++
		}
		first := i
		for i < len(s.content) && s.content[i].column().slot() == w.slot {
			i++
		}
		if l.at >= w.need && l.at < w.ends[Shared] {
			w.lack(f, l.at, s.content[first:i])
		}
	}
	return true
}

// lack ends the candidates of a worker that need a block of which it has these
// groups only.
func (w *sought) lack(f *finder, at int, has []element) {
	changed := false
	for m := range w.ends {
		for g, group := range f.shard.config.Groups {
			if group.Kind == Full || at >= w.ends[m] || at < group.from(w.ends[m], f.shard.config.BlockTokens) {
				continue
			}
			if !slices.ContainsFunc(has, func(e element) bool { return e.column().group() == g && e.mask().level() <= m }) {
				w.ends[m], changed = at, true
			}
		}
	}
	if changed {
		w.settle(f)
	}
}

// fullOnly takes the groups out of a set that are not full.
func (f *finder) fullOnly(all []element) []element {
	if f.t.partial == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(e element) bool { return f.t.partial>>e.column().group()&1 != 0 })
}

// alike reports whether two blocks have one cover but for groups that are not full, so
// that nothing changed for the others between them; or that one of them has changed.
func (s *seek) alike(f *finder, low, high look) (same, changed bool) {
	if low.set == empty || high.set == empty {
		return false, false
	}
	for i, l := range []look{low, high} {
		var stands bool
		if s.covers[i], stands = l.block.content(s.covers[i][:0], l.word, f.t.sets); !stands {
			return false, true
		}
		s.covers[i] = f.fullOnly(s.covers[i])
	}
	return slices.Equal(s.covers[0], s.covers[1]), !low.stands()
}

// matches appends a Match for each worker that can use something.
func (s *seek) matches(dst []Match, r *registry, tokens int32) []Match {
	for i := range s.workers {
		w := &s.workers[i]
		if w.ends[Shared] == 0 || int(w.slot) >= len(r.members) || !r.members[w.slot].live {
			continue
		}
		m := Match{Worker: r.members[w.slot].Worker, Usable: w.ends[Shared] * int(tokens), blockTokens: tokens}
		for medium, end := range w.ends {
			m.Blocks[medium] = int32(end)
		}
		dst = append(dst, m)
	}
	return dst
}
