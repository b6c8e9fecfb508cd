package cpu_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

const page = 4096

// A full arena gives up one candidate, the tail of the oldest chain, and no
// more.
func TestReserveEvictsOne(t *testing.T) {
	h, _ := newTier(t, 8*page, ledger.Limits{})
	old, young := store(t, h, 1, 4, page), store(t, h, 2, 4, page)
	var d drops
	c := tiertest.Chain(3, 2)
	ref, st, err := h.Reserve(t.Context(), fillOf(ledger.Daemon, c, 0, page, &d))
	if err != nil || st != ledger.Absent {
		t.Fatalf("reserve: state %d, error %v", st, err)
	}
	if want := tiertest.Keys(old, 3, 4); !slices.Equal(d.keys(), want) {
		t.Errorf("evicted %v; want the tail of the oldest chain", d.keys())
	}
	if want := tiertest.RecordOf(old, 3, page); d[0].Record != want {
		t.Errorf("the victim's record is %+v; want %+v", d[0].Record, want)
	}
	h.Abort([]tier.Ref{ref})
	clear(t, h, old, young)
}

// Entries are bounded as bytes are: one too many has the policy's victim go, and is
// refused where everything is in use.
func TestReserveEvictsForAnEntry(t *testing.T) {
	h, a := newTierOf(t, 8, 64*page, ledger.Limits{})
	old, young := store(t, h, 1, 4, page), store(t, h, 2, 4, page)
	if n := h.Room(page); n != 0 {
		t.Errorf("room for %d", n)
	}
	var d drops
	ref, _, err := h.Reserve(t.Context(), fillOf(ledger.Daemon, tiertest.Chain(3, 1), 0, page, &d))
	if err != nil {
		t.Fatal(err)
	}
	if want := tiertest.Keys(old, 3, 4); !slices.Equal(d.keys(), want) || a.Stats().FreeBytes < 50*page {
		t.Errorf("evicted %v with %d bytes free; want the tail of the oldest chain", d.keys(), a.Stats().FreeBytes)
	}
	held := make([]ledger.Entry, 4)
	rest := [][]key.Key{tiertest.Keys(old, 0, 3), tiertest.Keys(young, 0, 4)}
	for _, c := range rest {
		if n, err := h.Ledger().Hold(ledger.Daemon, ledger.IO, c, held); n != len(c) || err != nil {
			t.Fatal(n, err)
		}
	}
	if _, _, err := h.Reserve(t.Context(), fillOf(ledger.Daemon, tiertest.Chain(4, 1), 0, page, &d)); !errors.Is(err, tier.ErrNoSpace) {
		t.Errorf("with everything in use: %v", err)
	}
	h.Abort([]tier.Ref{ref})
	for _, c := range rest {
		for _, k := range c {
			e, _ := h.Ledger().Find(k)
			h.Ledger().Unhold(ledger.Daemon, ledger.IO, []ledger.ID{e.ID})
		}
	}
	clear(t, h, old, young)
}

// Room for a large chunk is made leaf by leaf.
func TestReserveEvictsUntilItFits(t *testing.T) {
	h, _ := newTier(t, 8*page, ledger.Limits{})
	old, young := store(t, h, 1, 4, page), store(t, h, 2, 4, page)
	var d drops
	ref, _, err := h.Reserve(t.Context(), fillOf(ledger.Daemon, tiertest.Chain(3, 1), 0, 3*page+1, &d))
	if err != nil {
		t.Fatal(err)
	}
	want := tiertest.Keys(old, 0, 4)
	slices.Reverse(want)
	if !slices.Equal(d.keys(), want) {
		t.Errorf("evicted %v; want the oldest chain, tail first", d.keys())
	}
	h.Abort([]tier.Ref{ref})
	clear(t, h, young)
}

// Not more than four times the bytes asked for are evicted in vain, even if the
// next victim is as large as that.
func TestReserveEvictionIsBounded(t *testing.T) {
	h, a := newTier(t, 16*page, ledger.Limits{})
	c := store(t, h, 1, 16, 1) // a byte each, in a page each
	held := make([]tier.Victim, 0, 16)
	f := fillOf(ledger.Daemon, tiertest.Chain(2, 1), 0, 2*page, nil)
	f.Drop = func(v tier.Victim) bool { held = append(held, v); return true } // somebody still needs the bytes
	_, _, err := h.Reserve(t.Context(), f)
	if !errors.Is(err, tier.ErrNoSpace) {
		t.Errorf("got %v; want no space", err)
	}
	if len(held) != 7 {
		t.Errorf("%d pages evicted for 2; want 7, with 2 more it would be over 4 times as much", len(held))
	}
	for _, v := range held {
		v.Block.Release()
	}
	if st := a.Stats(); st.Blocks != 9 {
		t.Errorf("%d blocks; want the 9 that were not evicted", st.Blocks)
	}
	clear(t, h, c)
}

// A reserve that may wait is not refused because others took the room it made;
// one that may not wait is, and has not evicted more for it.
func TestReserveLosesItsRoom(t *testing.T) {
	for patience, want := range map[tier.Patience]error{tier.Wait: nil, tier.AtOnce: tier.ErrNoSpace} {
		h, a := newTier(t, 16*page, ledger.Limits{})
		c := store(t, h, 1, 16, page)
		var thief []arena.Block
		f := fillOf(ledger.Daemon, tiertest.Chain(2, 1), 0, page, nil)
		f.Patience = patience
		f.Drop = func(v tier.Victim) bool {
			v.Block.Release()
			if len(thief) < 6 { // faster than the Reserve
				b, err := a.Alloc(page)
				if err != nil {
					t.Fatal(err)
				}
				thief = append(thief, b)
			}
			return false
		}
		ref, _, err := h.Reserve(t.Context(), f)
		if !errors.Is(err, want) {
			t.Errorf("patience %d: got %v; want %v", patience, err, want)
		}
		if n := map[tier.Patience]int{tier.Wait: 6, tier.AtOnce: 4}[patience]; len(thief) != n {
			t.Errorf("patience %d: %d victims were taken; want %d", patience, len(thief), n)
		}
		if err == nil {
			h.Abort([]tier.Ref{ref})
		}
		for _, b := range thief {
			b.Release()
		}
		clear(t, h, c)
	}
}

func TestReserveRespectsLeases(t *testing.T) {
	h, _ := newTier(t, 4*page, ledger.Limits{})
	c := store(t, h, 1, 4, page)
	refs := make([]tier.Ref, 4)
	o := h.Ledger().NewOwner()
	if n, err := h.Hold(o, ledger.Lease, tiertest.Keys(c, 0, 4), refs); n != 4 || err != nil {
		t.Fatalf("held %d, error %v", n, err)
	}
	h.Release(o, ledger.Lease, refs[:3]) // the tail's lease protects them all
	var d drops
	_, _, err := h.Reserve(t.Context(), fillOf(ledger.Daemon, tiertest.Chain(2, 1), 0, page, &d))
	if !errors.Is(err, tier.ErrNoSpace) || len(d) != 0 {
		t.Errorf("got %v after %d evictions; want no space, and none", err, len(d))
	}
	if err := tiertest.CheckPayload(c.Key(3), refs[3].Block.Bytes()); err != nil {
		t.Error(err)
	}
	h.Shrink(t.Context(), 0, d.take)
	if len(d) != 0 {
		t.Error("shrink took what a lease protects")
	}
	h.Release(o, ledger.Lease, refs[3:])
	h.Ledger().CloseOwner(o)
	clear(t, h, c)
}

func TestReserveStates(t *testing.T) {
	h, _ := newTier(t, mib, ledger.Limits{})
	c := tiertest.Chain(1, 1)
	ref := reserve(t, h, ledger.Daemon, c, 0, page)
	try := func() ledger.State {
		t.Helper()
		var d drops
		ref, st, err := h.Reserve(t.Context(), fillOf(ledger.Daemon, c, 0, page, &d))
		if err != nil || ref.Valid() != (st == ledger.Absent) {
			t.Fatalf("state %d, reference %t, error %v", st, ref.Valid(), err)
		}
		if ref.Valid() {
			h.Abort([]tier.Ref{ref})
		}
		return st
	}
	if st := try(); st != ledger.Filling {
		t.Errorf("while it is filled: %d", st)
	}
	if h.Has(c.Key(0)) {
		t.Error("a fill is resident")
	}
	h.Abort([]tier.Ref{ref})
	if st := try(); st != ledger.Absent {
		t.Errorf("after the abort: %d", st)
	}
	h.Publish([]tier.Ref{reserve(t, h, ledger.Daemon, c, 0, page)}, true, false)
	if st := try(); st != ledger.Resident {
		t.Errorf("after it was published: %d", st)
	}
	clear(t, h, c)
}

func TestReserveErrors(t *testing.T) {
	h, a := newTier(t, 16*page, ledger.Limits{Lease: 4 * page})
	mine, other := h.Ledger().NewOwner(), h.Ledger().NewOwner() // half of the class each
	c := tiertest.Chain(1, 4)
	var d drops
	held := []tier.Ref{reserve(t, h, mine, c, 0, page), reserve(t, h, mine, c, 1, page)}
	want := func(what string, f tier.Fill, want error) {
		t.Helper()
		if _, _, err := h.Reserve(t.Context(), f); !errors.Is(err, want) {
			t.Errorf("%s: got %v; want %v", what, err, want)
		}
	}
	f := fillOf(mine, c, 2, page, &d)
	f.Patience = tier.Wait // pointless: only it could make room
	want("above its own half", f, tier.ErrOverBudget)
	held = append(held, reserve(t, h, other, tiertest.Chain(2, 1), 0, 2*page))
	want("while others have the class", fillOf(ledger.Daemon, c, 2, page, &d), tier.ErrNoSpace)
	f = fillOf(ledger.Daemon, c, 2, 17*page, &d)
	f.Class = ledger.IO
	want("larger than the arena", f, tier.ErrTooLarge)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f = fillOf(ledger.Daemon, c, 2, page, &d)
	f.Patience = tier.Wait
	if _, _, err := h.Reserve(ctx, f); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	h.Abort(held)
	if n := a.Stats().Blocks; n != 0 {
		t.Errorf("%d blocks after everything was aborted", n)
	}
	h.Ledger().CloseOwner(mine)
	h.Ledger().CloseOwner(other)
	clear(t, h)
}

// Shrink starts above the high mark and goes on to the low one; what earlier
// victims still occupy is on its way and does not count.
func TestShrink(t *testing.T) {
	h, _ := newTier(t, 100*page, ledger.Limits{})
	c := store(t, h, 1, 95, page)
	var d drops
	h.Shrink(t.Context(), 0, d.take)
	if len(d) != 0 {
		t.Errorf("at the high mark %d were evicted", len(d))
	}
	more := store(t, h, 2, 2, page) // 97
	h.Shrink(t.Context(), 2*page, d.take)
	if len(d) != 0 {
		t.Errorf("%d evicted; 2 of 97 are on their way out", len(d))
	}
	var held []tier.Victim
	h.Shrink(t.Context(), 0, func(v tier.Victim) bool { held = append(held, v); return true })
	if len(held) != 7 {
		t.Errorf("%d evicted of 97; want it to go down to 90", len(held))
	}
	for i, v := range held {
		if v.Key != c.Key(94-i) {
			t.Errorf("victim %d is not chunk %d", i, 94-i)
		}
		v.Block.Release()
	}
	clear(t, h, c, more)
}

// Trim has more go where what went is still read, and its memory so in use.
func TestTrimOfWhatIsRead(t *testing.T) {
	h, _ := newTier(t, 100*page, ledger.Limits{})
	old := store(t, h, 1, 10, page)
	refs := make([]tier.Ref, 10)
	if n, err := h.Hold(ledger.Daemon, ledger.Lease, tiertest.Keys(old, 0, 10), refs); n != 10 {
		t.Fatal(n, err)
	}
	for _, r := range refs {
		r.Block.Retain() // a reader, without the lease
	}
	read := slices.Clone(refs)
	h.Release(ledger.Daemon, ledger.Lease, refs)
	young := store(t, h, 2, 90, page)
	out, err := h.Trim(t.Context(), 0, nil)
	if err != nil || len(out) != 20 {
		t.Errorf("%d went, %v; want the 10 that are read, and 10 more", len(out), err)
	}
	if _, err := h.Trim(t.Context(), 95*page, nil); !errors.Is(err, tier.ErrNoSpace) {
		t.Errorf("%v; want no space while 10 pages are read", err)
	}
	for _, r := range read {
		r.Block.Release()
	}
	clear(t, h, old, young)
}

// A held publish leaves no moment in which the entry can go.
func TestPublishHeld(t *testing.T) {
	h, a := newTier(t, 4*page, ledger.Limits{})
	c := tiertest.Chain(1, 1)
	refs := []tier.Ref{reserve(t, h, ledger.Daemon, c, 0, 4*page)}
	h.Publish(refs, false, true)
	var d drops
	if _, _, err := h.Reserve(t.Context(), fillOf(ledger.Daemon, tiertest.Chain(2, 1), 0, page, &d)); !errors.Is(err, tier.ErrNoSpace) {
		t.Errorf("got %v; want no space", err)
	}
	if err := h.Delete(t.Context(), tiertest.Keys(c, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if err := tiertest.CheckPayload(c.Key(0), refs[0].Block.Bytes()); err != nil {
		t.Error(err)
	}
	h.Release(ledger.Daemon, ledger.IO, refs)
	if n := a.Stats().Blocks; n != 0 {
		t.Errorf("%d blocks are left", n)
	}
	clear(t, h)
}
