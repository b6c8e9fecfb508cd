package index

import (
	"fmt"
	"testing"
)

// checkAll verifies every invariant of the tree's own structures.
func (t *Tree) checkAll() error {
	owned, chunks, holes, live := 0, 0, 0, 0
	for id, s := range t.ids {
		if t.spaces[s].id != id {
			return fmt.Errorf("space %x is filed as %d, which is %x", id, s, t.spaces[s].id)
		}
		live += 2
		before := chunks
		if t.runs.At(t.spaces[s].root).child == 0 && t.runs.At(t.spaces[s].limbo).child == 0 {
			return fmt.Errorf("space %x is empty and still there", id)
		}
		for _, top := range []uint32{t.spaces[s].root, t.spaces[s].limbo} {
			if r := t.runs.At(top); r.len != 0 || r.space != s || r.parent != 0 {
				return fmt.Errorf("virtual run %d: %+v", top, *r)
			}
			for run := t.deepest(top); run != top; run = t.nextUp(run) {
				live++
				if err := t.checkRun(run, s); err != nil {
					return err
				}
				r := t.runs.At(run)
				owned += int(r.head) + int(r.len) + int(r.tail)
				for i := range uint32(r.len) {
					if *t.slots.loc(r.start + i) == 0 {
						holes++
					} else {
						chunks++
					}
				}
			}
		}
		if got := int(t.spaces[s].chunks); got != chunks-before {
			return fmt.Errorf("space %x has %d chunks, kept %d", id, chunks-before, got)
		}
	}
	if chunks != t.chunks || holes != t.holes || live != t.runs.Used() {
		return fmt.Errorf("counted %d chunks %d placeholders %d runs, kept %d %d %d", chunks, holes, live, t.chunks, t.holes, t.runs.Used())
	}
	if err := t.slots.check(owned); err != nil {
		return err
	}
	if n := int(t.table.Len()); n != chunks+holes {
		return fmt.Errorf("table has %d entries, not %d", n, chunks+holes)
	}
	return nil
}

func (t *Tree) checkRun(id, space uint32) error {
	r := t.runs.At(id)
	if r.len == 0 || int(r.len) > t.maxRun || r.space != space {
		return fmt.Errorf("run %d: %+v", id, *r)
	}
	first, end := r.start-uint32(r.head), r.last()+uint32(r.tail)
	if first>>pageBits != end>>pageBits {
		return fmt.Errorf("run %d crosses pages: %d to %d", id, first, end)
	}
	for slot := first; slot <= end; slot++ {
		if t.slots.owner(slot) != id {
			return fmt.Errorf("slot %d of run %d belongs to %d", slot, id, t.slots.owner(slot))
		}
	}
	for slot := r.start; slot <= r.last(); slot++ {
		if got := t.find(space, t.slots.hash(slot)); got != slot {
			return fmt.Errorf("hash of slot %d of run %d leads to slot %d", slot, id, got)
		}
	}
	if c := r.child; c != 0 && (t.runs.At(c).parent != id || t.runs.At(c).prev != 0) {
		return fmt.Errorf("first child %d of %d: %+v", c, id, *t.runs.At(c))
	}
	if n := r.next; n != 0 && (t.runs.At(n).prev != id || t.runs.At(n).parent != r.parent) {
		return fmt.Errorf("sibling %d after %d: %+v", n, id, *t.runs.At(n))
	}
	if len(t.prunable) == 0 && t.isPrunable(r) {
		return fmt.Errorf("run %d ends in a placeholder with nothing below", id)
	}
	return nil
}

func (s *slots) check(owned int) error {
	total, free, inBins, leaving := 0, 0, 0, 0
	for n, p := range s.pages {
		if p == nil {
			continue
		}
		total += pageSlots
		before := free
		for o := 0; o < pageSlots; {
			slot := uint32(n<<pageBits + o)
			if p.run[o] != 0 {
				o++
				continue
			}
			size := s.size(slot)
			if size == 0 || o+size > pageSlots || s.footer(slot+uint32(size)-1) != size {
				return fmt.Errorf("free stretch at %d has size %d", slot, size)
			}
			if end := o + size; end < pageSlots && p.run[end] == 0 {
				return fmt.Errorf("free stretch at %d did not join the next", slot)
			}
			free += size
			if s.isLeaving(slot) {
				leaving += size
			}
			o += size
		}
		if int(s.frees[n]) != free-before {
			return fmt.Errorf("page %d has %d free slots, kept %d", n, free-before, s.frees[n])
		}
	}
	for b, slot := range s.bins {
		if (slot != 0) != (s.filled>>b&1 == 1) {
			return fmt.Errorf("bin %d and its bit disagree", b)
		}
		for ; slot != 0; slot = s.load(slot, nextAt) {
			if s.owner(slot) != 0 || floorBin(s.size(slot)) != uint(b) {
				return fmt.Errorf("stretch %d of %d in bin %d", slot, s.size(slot), b)
			}
			inBins += s.size(slot)
		}
	}
	if total > 0 {
		total-- // slot 0
	}
	if free != s.free || inBins+leaving != free || total != free+owned {
		return fmt.Errorf("slots: total %d, owned %d, free %d, in bins %d, kept %d", total, owned, free, inBins, s.free)
	}
	return nil
}

func mustCheck(tb testing.TB, t *Tree) {
	tb.Helper()
	if err := t.checkAll(); err != nil {
		tb.Fatal(err)
	}
}

// deepest follows first children down to a leaf.
func (t *Tree) deepest(id uint32) uint32 {
	for child := t.runs.At(id).child; child != 0; child = t.runs.At(id).child {
		id = child
	}
	return id
}

// nextUp is the run after id when children come before their parents.
func (t *Tree) nextUp(id uint32) uint32 {
	if r := t.runs.At(id); r.next == 0 {
		return r.parent
	}
	return t.deepest(t.runs.At(id).next)
}
