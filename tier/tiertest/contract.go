package tiertest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

const kib, mib = 1 << 10, 1 << 20

// sizes lie around a page, the unit of arenas and of direct I/O.
var sizes = []int{1, 4095, 4096, 4097, 64 * kib, mib + 3}

func testRoundTrip(_ *testing.T, s *suite) {
	c := Chain(1, len(sizes))
	for i, n := range sizes {
		s.put(c, i, n)
	}
	for i, n := range sizes {
		s.get(c.Key(i), n)
	}
}

func testMiss(t *testing.T, s *suite) {
	_, err := s.Tier.Get(t.Context(), Chain(1, 1).Key(0), s.Alloc)
	wantErr(t, "get of what was never stored", err, tier.ErrNotFound)
}

func testPutIsIdempotent(t *testing.T, s *suite) {
	const n = 5000
	c := s.putChain(1, 1, n)
	other := NewEntry(t, s.Arena, Chain(2, 1), 0, n)
	defer other.Block.Release()
	other.Key = c.Key(0)
	if err := s.Tier.Put(t.Context(), other); err != nil {
		t.Fatalf("second put of a key: %v", err)
	}
	s.get(c.Key(0), n) // checks that they are the first one's bytes
}

func testContains(t *testing.T, s *suite) {
	const n = 300
	c := Chain(1, n)
	var want []bool
	for i := range n {
		want = append(want, i%3 != 1)
		if want[i] {
			s.put(c, i, 100)
		}
	}
	if have := s.have(Keys(c, 0, n)); !slices.Equal(have, want) {
		t.Errorf("contains found %v; want %v", have, want)
	}
	for i := range 3 {
		if have := s.have(Keys(c, i, i+1)); have[0] != want[i] {
			t.Errorf("chunk %d asked alone: %t; want %t", i, have[0], want[i])
		}
	}
	s.have(nil)
}

func testDelete(t *testing.T, s *suite) {
	const n = 5000
	c := s.putChain(1, 4, n)
	absent := Chain(2, 1).Key(0)
	if err := s.Tier.Delete(t.Context(), []key.Key{c.Key(1), absent, c.Key(3)}); err != nil {
		t.Fatalf("delete: %v", err)
	}
	if have, want := s.have(Keys(c, 0, 4)), []bool{true, false, true, false}; !slices.Equal(have, want) {
		t.Errorf("after the deletion of 1 and 3: %v; want %v", have, want)
	}
	_, err := s.Tier.Get(t.Context(), c.Key(1), s.Alloc)
	wantErr(t, "get of a deleted key", err, tier.ErrNotFound)
	if err := s.Tier.Delete(t.Context(), []key.Key{c.Key(1)}); err != nil {
		t.Errorf("second delete: %v", err)
	}
	s.put(c, 1, 2*n)
	s.get(c.Key(1), 2*n)
	s.get(c.Key(2), n)
}

func testCancelledContext(t *testing.T, s *suite) {
	const n = 5000
	c := s.putChain(1, 1, n)
	ks := []key.Key{c.Key(0)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fresh := NewEntry(t, s.Arena, Chain(2, 1), 0, n)
	defer fresh.Block.Release()

	wantErr(t, "contains", s.Tier.Contains(ctx, ks, make([]bool, 1)), context.Canceled)
	_, err := s.Tier.Get(ctx, ks[0], s.Alloc)
	wantErr(t, "get", err, context.Canceled)
	wantErr(t, "put", s.Tier.Put(ctx, fresh), context.Canceled)
	wantErr(t, "delete", s.Tier.Delete(ctx, ks), context.Canceled)

	s.get(ks[0], n)
	if s.have([]key.Key{fresh.Key})[0] {
		t.Error("a cancelled put stored its entry")
	}
}

func testAllocatorFails(t *testing.T, s *suite) {
	const n = 5000
	c := s.putChain(1, 1, n)
	var a noRoom
	b, err := s.Tier.Get(t.Context(), c.Key(0), &a)
	if a.asked == 0 { // a tier in the arena shares its block
		if err != nil {
			t.Fatalf("get: %v", err)
		}
		b.Release()
		return
	}
	wantErr(t, "get without room", err, errRoom)
	s.get(c.Key(0), n)
}

func testStats(t *testing.T, s *suite) {
	c := Chain(1, len(sizes))
	var sum int64
	for i, n := range sizes {
		s.put(c, i, n)
		sum += int64(n)
	}
	s.put(c, 0, sizes[0]) // stores nothing new
	s.get(c.Key(2), sizes[2])
	_, err := s.Tier.Get(t.Context(), Chain(2, 1).Key(0), s.Alloc)
	wantErr(t, "miss", err, tier.ErrNotFound)

	st := s.Tier.Stats()
	shared := tier.RolesOf(s.Tier).Shared != nil // cannot know how much others store
	for _, v := range []struct {
		name      string
		got, want int64
	}{
		{"Entries", st.Entries, int64(len(sizes))},
		{"PayloadBytes", st.PayloadBytes, sum},
		{"Puts", int64(st.Puts), int64(len(sizes))},
		{"PutBytes", int64(st.PutBytes), sum},
		{"Gets", int64(st.Gets), 1},
		{"GetBytes", int64(st.GetBytes), int64(sizes[2])},
		{"Evictions", int64(st.Evictions), 0},
		{"Corrupt", int64(st.Corrupt), 0},
	} {
		if shared && (v.name == "Entries" || v.name == "PayloadBytes") {
			v.want = 0
		}
		if v.got != v.want {
			t.Errorf("%s is %d; want %d", v.name, v.got, v.want)
		}
	}
	if st.UsedBytes < st.PayloadBytes {
		t.Errorf("%d payload bytes occupy only %d", st.PayloadBytes, st.UsedBytes)
	}
	if st.CapacityBytes != 0 && st.UsedBytes > st.CapacityBytes {
		t.Errorf("%d bytes used of %d", st.UsedBytes, st.CapacityBytes)
	}
	if err := s.Tier.Delete(t.Context(), Keys(c, 0, c.Len())); err != nil {
		t.Fatal(err)
	}
	if st := s.Tier.Stats(); st.Entries != 0 || st.PayloadBytes != 0 {
		t.Errorf("%d entries with %d bytes after all were deleted", st.Entries, st.PayloadBytes)
	}
}

func testClosed(t *testing.T, s *suite) {
	c := s.putChain(1, 2, 5000)
	e := NewEntry(t, s.Arena, c, 1, 5000)
	defer e.Block.Release()
	// Deleted first: what a closed tier in the arena holds is its owner's.
	if err := s.Tier.Delete(t.Context(), Keys(c, 0, 2)); err != nil {
		t.Fatal(err)
	}
	if err := s.Tier.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	s.closed = true
	wantErr(t, "contains", s.Tier.Contains(t.Context(), Keys(c, 0, 1), make([]bool, 1)), tier.ErrClosed)
	_, err := s.Tier.Get(t.Context(), c.Key(0), s.Alloc)
	wantErr(t, "get", err, tier.ErrClosed)
	wantErr(t, "put", s.Tier.Put(t.Context(), e), tier.ErrClosed)
	wantErr(t, "delete", s.Tier.Delete(t.Context(), Keys(c, 0, 1)), tier.ErrClosed)
	if err := s.Tier.Close(); err != nil && !errors.Is(err, tier.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
}
