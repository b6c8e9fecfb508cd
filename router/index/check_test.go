package index

import (
	"maps"
	"slices"
	"testing"
)

// check verifies all that must hold between the parts of a shard.
func check(t *testing.T, s *Shard) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	tr := s.tree.Load()
	refs, held := make(map[setID]uint32), make(map[uint32]int)
	seen, named, links := 0, 0, 0
	tr.walk(func(n uint32, _ int) {
		seen++
		b := tr.blocks.at(n)
		if got := tr.table.get(b.key.Load()); got != n {
			t.Fatalf("block %d, key %#x: the table has %d", n, b.key.Load(), got)
		}
		if b.child == 0 && b.own == empty {
			t.Fatalf("block %d is a leaf of no worker", n)
		}
		checkLinks(t, tr, n)
		if b.up&many != 0 {
			links++
		}
		checkCover(t, tr, n)
		for _, e := range tr.sets.all(nil, b.own) {
			held[e.column().slot()] += e.media()
		}
		for _, id := range []setID{b.own, b.coverSet()} {
			if id.stored() {
				refs[id]++
			}
		}
		tr.alias.each(n, func(a alias) {
			named++
			if got := tr.alias.get(a.hash, a.scheme); got != n {
				t.Fatalf("alias %v of block %d leads to %d", a, n, got)
			}
		})
	})
	if seen != tr.blocks.count || seen != tr.table.count {
		t.Fatalf("%d blocks in chains, %d counted, %d in the table", seen, tr.blocks.count, tr.table.count)
	}
	if links != len(tr.blocks.siblings.of) {
		t.Fatalf("%d blocks have siblings, %d links", links, len(tr.blocks.siblings.of))
	}
	if named != tr.alias.count() {
		t.Fatalf("%d aliases at blocks, %d counted", named, tr.alias.count())
	}
	if !maps.Equal(held, s.mu.held) {
		t.Fatalf("workers have %v blocks, counted are %v", held, s.mu.held)
	}
	checkSets(t, tr.sets, refs)
	checkClaims(t, s, tr)
	if s.mu.bytes != s.liveBytes() {
		t.Fatalf("%d bytes counted, there are %d", s.mu.bytes, s.liveBytes())
	}
}

func checkLinks(t *testing.T, tr *tree, n uint32) {
	t.Helper()
	b := tr.blocks.at(n)
	s, linked := tr.blocks.siblings.of[n]
	if linked != (b.up&many != 0) || linked != (s != sibling{}) {
		t.Fatalf("block %d: marked %#x, its links are %+v", n, b.up, s)
	}
	if s.prev == 0 && tr.blocks.at(b.parent()).child != n || s.prev != 0 && tr.blocks.next(s.prev) != n {
		t.Fatalf("block %d is not where its parent or sibling says", n)
	}
	if s.next != 0 && tr.blocks.siblings.of[s.next].prev != n || b.child != 0 && tr.blocks.at(b.child).parent() != n {
		t.Fatalf("block %d: its sibling or child does not know it", n)
	}
}

// checkCover computes a block's cover from its parent's.
func checkCover(t *testing.T, tr *tree, n uint32) {
	t.Helper()
	b := tr.blocks.at(n)
	var want []element
	for _, e := range tr.sets.all(nil, b.own) {
		if level := max(tr.level(b.parent(), e.column()), e.mask().level()); level < none {
			want = append(want, e.column().with(cover(level)))
		}
	}
	if got := tr.sets.all(nil, b.coverSet()); !slices.Equal(got, want) {
		t.Fatalf("block %d: cover %x, want %x", n, got, want)
	}
}

// checkSets compares the references of sets, and the table, with the blocks.
func checkSets(t *testing.T, s *sets, refs map[setID]uint32) {
	t.Helper()
	if len(refs) != s.count {
		t.Fatalf("%d sets in use, %d counted", len(refs), s.count)
	}
	live := int64(0)
	for id, n := range refs {
		if got := s.at(id)[0]; got != n {
			t.Fatalf("set %d: %d references, want %d", id, got, n)
		}
		all := s.all(nil, id)
		if !slices.IsSortedFunc(all, func(a, b element) int { return int(a.column()) - int(b.column()) }) || len(all) < 2 {
			t.Fatalf("set %d: %x", id, all)
		}
		if again := s.intern(all); again != id {
			t.Fatalf("set %d is found as %d", id, again)
		}
		s.release(id)
		live += int64(sizes[classOf(len(all))])
	}
	if live != s.live {
		t.Fatalf("%d words of sets, %d counted", live, s.live)
	}
}

func checkClaims(t *testing.T, s *Shard, tr *tree) {
	t.Helper()
	r := s.index.workers.Load()
	for c := range s.mu.claims {
		n := tr.table.get(c.key)
		if n == 0 || tr.sets.get(tr.blocks.at(n).own, c.element.column())&c.element.mask() == 0 {
			t.Fatalf("claim %+v of what the worker does not have", c)
		}
		if r.members[c.element.column().slot()].ttl == 0 {
			t.Fatalf("claim %+v of a worker that has no time to live", c)
		}
	}
}
