package index

import (
	"fmt"
	"math/bits"
)

// Add makes sure that the whole chain, which starts at the root, is linked,
// and adds set to the locations of chain[from:]. Ancestors that were not
// known become placeholders; detached pieces named by the chain are joined.
//
// It costs a comparison per known chunk and a table insert per new one, so
// callers bound a long chain's share of their lock by adding it in pieces:
// chain[:k] with growing k. On ErrInconsistent nothing has changed.
func (t *Tree) Add(space Hash, chain []Hash, from int, set Loc) error {
	if len(chain) == 0 {
		return nil
	}
	s := t.ids[space]
	var p place
	if s != 0 {
		p = t.follow(t.spaces[s].root, chain)
	}
	fresh, err := t.check(s, chain, p.depth)
	if err != nil {
		return err
	}
	if s == 0 {
		s = t.intern(space)
		p.run = t.spaces[s].root
	}
	t.complete(s, chain, p, fresh)
	t.mark(s, chain, from, set)
	t.prune(t.slots.owner(t.find(s, chain[len(chain)-1])))
	return nil
}

// place is how far a chain could be followed: depth chunks, the last n of
// them in run. n is 0 at a virtual run only.
type place struct {
	run   uint32
	n     int
	depth int
}

// follow descends from the end of run at, comparing every hash.
func (t *Tree) follow(at uint32, chain []Hash) place {
	p := place{run: at, n: int(t.runs.At(at).len)}
	for p.depth < len(chain) && p.n == int(t.runs.At(p.run).len) {
		id, n := t.step(p.run, chain[p.depth:])
		if n == 0 {
			break
		}
		p = place{run: id, n: n, depth: p.depth + n}
	}
	return p
}

// check refuses a chain whose part behind the first known chunks cannot be
// linked: every chunk there must be unknown, detached, or already behind the
// one it shall follow, and there only once. fresh says that all are unknown.
func (t *Tree) check(s uint32, chain []Hash, known int) (fresh bool, err error) {
	fresh = true
	var prev Hash
	if known > 0 {
		prev = chain[known-1]
	}
	for i, h := range chain[known:] {
		if h == (Hash{}) {
			return false, fmt.Errorf("radix: chunk %d has the zero hash: %w", known+i, ErrInconsistent)
		}
		if slot := t.find(s, h); slot != 0 {
			fresh = false
			if have, ok := t.parentOf(slot); ok && have != prev {
				return false, fmt.Errorf("radix: chunk %d (%x) is known below %x, not %x: %w", known+i, h, have, prev, ErrInconsistent)
			}
		}
		prev = h
	}
	if t.hasRepeat(chain[known:]) {
		return false, fmt.Errorf("radix: a chunk occurs twice in one chain: %w", ErrInconsistent)
	}
	return fresh, nil
}

// hasRepeat uses a small open-addressing table of positions in scratch.
func (t *Tree) hasRepeat(hashes []Hash) bool {
	if len(hashes) < 2 {
		return false
	}
	size := 1 << bits.Len(uint(2*len(hashes)))
	if cap(t.scratch) < size {
		t.scratch = make([]uint32, size)
	}
	seen := t.scratch[:size]
	clear(seen)
	for i, h := range hashes {
		at := int(t.mix(0, h)) & (size - 1)
		for ; seen[at] != 0; at = (at + 1) & (size - 1) {
			if hashes[seen[at]-1] == h {
				return true
			}
		}
		seen[at] = uint32(i + 1)
	}
	return false
}

// complete links what of a checked chain is missing behind p.
func (t *Tree) complete(s uint32, chain []Hash, p place, fresh bool) {
	rest := chain[p.depth:]
	if fresh && len(rest) > 0 {
		end := p.run
		if p.n < int(t.runs.At(end).len) {
			end = t.split(end, p.n)
		}
		t.extend(end, rest)
		return
	}
	var parent Hash
	if p.depth > 0 {
		parent = chain[p.depth-1]
	}
	for _, h := range rest {
		slot, linked := t.find(s, h), false
		if slot != 0 {
			_, linked = t.parentOf(slot)
		}
		if !linked {
			t.linkOne(s, parent, h, t.find(s, parent), slot)
		}
		parent = h
	}
}

// extend appends hashes, unknown so far, to the end of a run as placeholders
// and returns the run they end in.
func (t *Tree) extend(at uint32, hashes []Hash) uint32 {
	if r := t.runs.At(at); r.len > 0 && r.child == 0 {
		n := min(len(hashes), t.maxRun-int(r.len))
		if n > 0 {
			t.makeRoom(at, 0, n)
			t.write(r.space, r.last()+1, hashes[:n])
			r.len, r.tail = r.len+uint16(n), r.tail-uint16(n)
		}
		hashes = hashes[n:]
	}
	for len(hashes) > 0 {
		n := min(len(hashes), t.maxRun)
		id := t.runs.alloc(t.runs.At(at).space)
		r := t.runs.At(id)
		r.start, r.len = t.slots.alloc(n, id), uint16(n)
		t.write(r.space, r.start, hashes[:n])
		t.runs.link(at, id)
		at, hashes = id, hashes[n:]
	}
	return at
}

// prepend puts a placeholder before the first chunk of a detached run.
func (t *Tree) prepend(id uint32, hash Hash) {
	r := t.runs.At(id)
	if int(r.len) == t.maxRun {
		above := t.extend(r.parent, []Hash{hash})
		t.runs.unlink(id)
		t.runs.link(above, id)
		return
	}
	t.makeRoom(id, 1, 0)
	r.start, r.len, r.head = r.start-1, r.len+1, r.head-1
	t.write(r.space, r.start, []Hash{hash})
}

// write fills slots, which have an owner in space, with placeholders.
func (t *Tree) write(space, slot uint32, hashes []Hash) {
	copy(t.slots.hashes(slot, len(hashes)), hashes)
	clear(t.slots.locs(slot, len(hashes)))
	t.slots.clearMarks(slot, len(hashes))
	for i, h := range hashes {
		t.table.Insert(t.mix(space, h), slot+uint32(i), t.slots.next(slot+uint32(i)))
	}
	t.holes += len(hashes)
}

// mark adds set to the locations of chain[from:], which is all linked.
func (t *Tree) mark(s uint32, chain []Hash, from int, set Loc) {
	at := t.spaces[s].root
	for i := 0; i < len(chain); {
		id, n := t.step(at, chain[i:])
		r := t.runs.At(id)
		for j := max(from-i, 0); j < n; j++ {
			t.setLoc(s, r.start+uint32(j), set, 0)
		}
		i += n
		at = id
	}
}

// setLoc changes the locations of one chunk of space s and keeps count.
func (t *Tree) setLoc(s, slot uint32, set, clear Loc) Loc {
	loc := t.slots.loc(slot)
	before := *loc
	now := before&^clear | set
	*loc = now
	if before == 0 && now != 0 {
		t.holes--
		t.chunks++
		t.spaces[s].chunks++
	} else if before != 0 && now == 0 {
		t.holes++
		t.chunks--
		t.spaces[s].chunks--
	}
	return now
}
