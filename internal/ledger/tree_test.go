package ledger_test

import (
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// 10,000 prompts that begin with the same 10,000 chunks: the shared part is there
// once, and its last chunk stays until all suffixes have gone.
func TestSharedPrefixIsStoredOnce(t *testing.T) {
	const n = 2000
	l, tree := newLedger(t, "lru", ledger.Limits{}), index.NewTree()
	shared := chain(0, n)
	l.Publish(fill(t, l, shared, 0), false)
	held := make([]ledger.Entry, n) // as who stores a suffix does, or each walks to the root
	l.Hold(ledger.Daemon, ledger.IO, shared, held)
	hashes := make([]key.Hash, n, n+1)
	for i, k := range shared {
		hashes[i] = k.Hash
	}
	for p := range uint32(n) {
		k := chain(p+1, 1)[0]
		id, state, err := l.Begin(ledger.Daemon, ledger.Load, k, shared[n-1].Hash, page)
		if err != nil || state != ledger.Absent {
			t.Fatal(state, err)
		}
		l.Publish([]ledger.ID{id}, false)
		if p%500 == 0 { // with the whole chain, or by its parent
			err = tree.Add(k.Space, append(hashes[:n:n], k.Hash), 0, 1)
		} else {
			err = tree.Insert(k.Space, shared[n-1].Hash, k.Hash, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l.Unhold(ledger.Daemon, ledger.IO, ids(held))
	if s := l.Stats(); s.Entries != 2*n || s.UsedBytes != 2*n*page || s.Holes != 0 {
		t.Errorf("%+v", s)
	}
	if s := tree.Stats(); s.Chunks != 2*n || s.Placeholders != 0 {
		t.Errorf("%+v", s)
	}
	for i, k := range evictAll(t, l) { // all suffixes go before the last of the shared
		if tail := i >= n; tail != slices.Contains(shared[n-1:], k) && i <= n {
			t.Fatalf("victim %d is %x", i, k.Hash)
		}
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// Equal tokens under two salts have nothing in common, and equal tokens at two
// depths are two keys.
func TestWhatIsNotShared(t *testing.T) {
	tokens := make([]uint32, 64) // the same chunk four times
	build := func(salt string) key.Chain {
		b, err := key.NewBuilder(key.Space{
			Model: "m", World: 1, DType: "bf16", ChunkTokens: 16, Method: key.SHA256, Salt: salt,
		})
		if err != nil {
			t.Fatal(err)
		}
		var c key.Chain
		if err := b.Tokens(&c, tokens, key.Options{}); err != nil {
			t.Fatal(err)
		}
		return c
	}
	l, tree := newLedger(t, "lru", ledger.Limits{}), index.NewTree()
	a, b := build("a"), build("b")
	for _, c := range []key.Chain{a, b} {
		var ks []key.Key
		for i := range c.Len() {
			ks = append(ks, c.Key(i))
		}
		l.Publish(fill(t, l, ks, 0), false)
		if err := tree.Add(c.Space, c.Hashes, 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	if a.Len() != 4 || l.Stats().Entries != 8 || tree.Stats().Chunks != 8 {
		t.Errorf("%d chunks a chain; %d entries, %d chunks known", a.Len(), l.Stats().Entries, tree.Stats().Chunks)
	}
	for _, h := range a.Hashes {
		if slices.Contains(b.Hashes, h) {
			t.Error("a hash of both salts")
		}
	}
}

// A chunk that is lost in the middle of a chain leaves a hole, which protects
// nothing and heals when the chunk is stored again. Every set of chunks is lost,
// and comes back from the tail on.
func TestHolesHeal(t *testing.T) {
	const n = 6
	for lost := range 1 << n { // every set of chunks
		l := newLedger(t, "lru", ledger.Limits{})
		ks := chain(1, n)
		l.Publish(fill(t, l, ks, 0), false)
		for i := range ks {
			if lost>>i&1 != 0 {
				e, _ := l.Remove(ks[i])
				l.Free(e.ID)
			}
		}
		for i := n - 1; i >= 0; i-- {
			if lost>>i&1 == 0 {
				continue
			}
			id, state, err := l.Begin(ledger.Daemon, ledger.Load, ks[i], parent(ks, i), page)
			if err != nil || state != ledger.Absent {
				t.Fatalf("lost %06b: chunk %d is %v: %v", lost, i, state, err)
			}
			l.Publish([]ledger.ID{id}, false)
		}
		if err := l.Check(); err != nil {
			t.Fatalf("lost %06b: %v", lost, err)
		}
		want := slices.Clone(ks)
		slices.Reverse(want)
		if s := l.Stats(); s.Holes != 0 || s.Entries != n {
			t.Fatalf("lost %06b: %+v", lost, s)
		}
		if got := evictAll(t, l); !slices.Equal(got, want) {
			t.Fatalf("lost %06b: not the tail first: %v", lost, got)
		}
	}
}

// Every chain of up to five chunks, each in any set of the three tiers or in
// none.
func TestMatchAndWalkEverywhere(t *testing.T) {
	tree := index.NewTree()
	for depth := 1; depth <= 5; depth++ {
		hashes := make([]key.Hash, depth)
		for i := range hashes {
			hashes[i] = key.Hash{0: byte(i + 1)}
		}
		for code := range 1 << (3 * depth) {
			sp := key.SpaceID{byte(depth), byte(code), byte(code >> 8)} // one for each case
			last := 0
			for i := range hashes {
				if at := index.Loc(code >> (3 * i) & 7); at != 0 {
					last = i + 1
					if err := tree.Add(sp, hashes[:i+1], i, at); err != nil {
						t.Fatal(err)
					}
				}
			}
			locs := make([]index.Loc, depth)
			if known := tree.Match(sp, hashes, 0, locs, nil); known != last {
				t.Fatalf("depth %d, %o: %d known, want %d", depth, code, known, last)
			}
			seen := 0
			tree.Walk(sp, func(h, parent key.Hash, d int, at index.Loc) bool {
				seen++
				if d >= last || h != hashes[d] || d > 0 && parent != hashes[d-1] || at != index.Loc(code>>(3*d)&7) || at != locs[d] {
					t.Fatalf("depth %d, %o: walk came by %x at %d with %b", depth, code, h, d, at)
				}
				return true
			})
			if seen != last {
				t.Fatalf("depth %d, %o: %d walked, want %d", depth, code, seen, last)
			}
		}
	}
}
