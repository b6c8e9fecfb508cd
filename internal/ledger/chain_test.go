package ledger_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// chain is n keys of one prompt. They are counters, as some engines' are.
func chain(prompt uint32, n int) []key.Key {
	ks := make([]key.Key, n)
	for i := range ks {
		binary.LittleEndian.PutUint32(ks[i].Hash[:], uint32(i+1))
		binary.LittleEndian.PutUint32(ks[i].Hash[4:], prompt)
	}
	return ks
}

func parent(ks []key.Key, i int) key.Hash {
	if i == 0 {
		return key.Hash{}
	}
	return ks[i-1].Hash
}

func newLedger(t testing.TB, name string, limits ledger.Limits) *ledger.Ledger {
	t.Helper()
	return ledger.New(ledger.Options{CapacityBytes: 1 << 40, Policy: policyOf(t, name), Limits: limits})
}

func policyOf(t testing.TB, name string) policy.Policy {
	t.Helper()
	p, err := policy.New(name, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fill begins ks[from:] for the daemon.
func fill(t testing.TB, l *ledger.Ledger, ks []key.Key, from int) []ledger.ID {
	t.Helper()
	var ids []ledger.ID
	for i := from; i < len(ks); i++ {
		id, state, err := l.Begin(ledger.Daemon, ledger.Load, ks[i], parent(ks, i), page)
		if err != nil || state != ledger.Absent {
			t.Fatalf("Begin %d: %v, %v", i, state, err)
		}
		ids = append(ids, id)
	}
	return ids
}

func ids(es []ledger.Entry) []ledger.ID {
	out := make([]ledger.ID, len(es))
	for i, e := range es {
		out[i] = e.ID
	}
	return out
}

// evictAll returns the keys in the order in which they go.
func evictAll(t testing.TB, l *ledger.Ledger) (ks []key.Key) {
	t.Helper()
	for {
		e, ok := l.Evict()
		if !ok {
			return ks
		}
		l.Free(e.ID)
		ks = append(ks, e.Key)
	}
}

// counter counts what a ledger does to its policy.
type counter struct {
	policy.Policy
	adds, touches int
}

func (c *counter) Add(id policy.ID, m policy.Meta) { c.adds++; c.Policy.Add(id, m) }
func (c *counter) Touch(id policy.ID)              { c.touches++; c.Policy.Touch(id) }

func TestChainPublishedInPiecesCostsOneStepAChunk(t *testing.T) {
	const n = 20_000
	lru, _ := policy.New("lru", 1)
	c := &counter{Policy: lru}
	l := ledger.New(ledger.Options{Policy: c})
	ks := chain(1, n)
	var all []ledger.ID
	for i := range ks {
		id := fill(t, l, ks[:i+1], i)
		// As a job does: it holds the prefix while it goes on.
		if held, err := l.PublishHeld(ledger.Daemon, ledger.Lease, id, false); held != 1 || err != nil {
			t.Fatal(held, err)
		}
		all = append(all, id...)
	}
	l.Unhold(ledger.Daemon, ledger.Lease, all)
	if c.adds != n || c.touches != 0 {
		t.Errorf("%d adds, %d touches for %d chunks", c.adds, c.touches, n)
	}
	for i, k := range evictAll(t, l) {
		if k != ks[n-1-i] {
			t.Fatalf("victim %d is %v", i, k)
		}
	}
	if c.touches > n {
		t.Errorf("%d touches of ancestors for %d chunks", c.touches, n)
	}
}

func TestHeadIsYoungerThanTail(t *testing.T) {
	for _, name := range []string{"lru", "fifo", "lfu"} {
		l := newLedger(t, name, ledger.Limits{})
		a, b := chain(1, 20), chain(2, 20)
		l.Publish(fill(t, l, a[:10], 0), false)
		l.Publish(fill(t, l, b, 0), false)
		l.Publish(fill(t, l, a, 10), false) // after b: a's head must not be older than b
		l.Touch(b)
		from := l.Stats().Steps
		evictAll(t, l)
		if steps := l.Stats().Steps - from; steps > 41*40/10 {
			t.Errorf("%s: %d steps for 40 chunks", name, steps)
		}
	}
}

// A head is as young as its tail was, also where the tail has gone by itself and where
// another prompt was stored by turns with it.
func TestLRUEvictsWholeTailsFirst(t *testing.T) {
	a, b, c := chain(1, 4), chain(2, 2), chain(3, 2)
	for name, tc := range map[string]struct{ gone, want []key.Key }{
		"whole":         {nil, []key.Key{b[1], b[0], a[3], a[2], a[1], a[0], c[1], c[0]}},
		"tail has gone": {a[2:], []key.Key{b[1], b[0], a[1], a[0], c[1], c[0]}},
	} {
		l := newLedger(t, "lru", ledger.Limits{})
		l.Publish(fill(t, l, a[:2], 0), false)
		l.Publish(fill(t, l, b, 0), false)
		tail, other := fill(t, l, a, 2), fill(t, l, c, 0)
		l.Publish(tail, false)
		l.Publish(other, false)
		for _, k := range tc.gone {
			e, _ := l.Remove(k)
			l.Free(e.ID)
		}
		if got := evictAll(t, l); !slices.Equal(got, tc.want) {
			t.Errorf("%s: evicted %x, want %x", name, hashesOf(got), hashesOf(tc.want))
		}
	}
}

func TestHoldOfADeepChunkProtectsItsAncestors(t *testing.T) {
	l := newLedger(t, "lru", ledger.Limits{})
	ks := chain(1, 10)
	l.Publish(fill(t, l, ks, 0), false)
	out := make([]ledger.Entry, 1)
	if n, err := l.Hold(ledger.Daemon, ledger.Pin, ks[6:7], out); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if s := l.Stats(); s.ProtectedBytes != 7*page || s.ClassBytes[ledger.Pin] != page {
		t.Errorf("protected %d, pinned %d", s.ProtectedBytes, s.ClassBytes[ledger.Pin])
	}
	if got := len(evictAll(t, l)); got != 3 {
		t.Errorf("evicted %d of the 3 below the pin", got)
	}
	freed := l.Released()
	l.Unhold(ledger.Daemon, ledger.Pin, ids(out))
	select {
	case <-freed:
	default:
		t.Error("Unhold did not wake who waits")
	}
	if got := len(evictAll(t, l)); got != 7 {
		t.Errorf("evicted %d of the 7 left", got)
	}
}

func TestLimitsOfOneClient(t *testing.T) {
	l := newLedger(t, "lru", ledger.Limits{Lease: 10 * page, Total: 100 * page})
	ks := chain(1, 20)
	l.Publish(fill(t, l, ks, 0), false)
	out := make([]ledger.Entry, len(ks))
	one := l.NewOwner()
	n, err := holdTouch(l, one, ledger.Lease, ks, out)
	if n != 10 || !errors.Is(err, ledger.ErrOverBudget) {
		t.Fatalf("alone: %d, %v", n, err)
	}
	two := l.NewOwner()
	if n, err := holdTouch(l, two, ledger.Lease, ks, out[10:]); n != 5 || !errors.Is(err, ledger.ErrOverBudget) {
		t.Fatalf("what another holds anyway costs only the own half: %d, %v", n, err)
	}
	l.Unhold(two, ledger.Lease, ids(out[10:15]))
	if _, err := holdTouch(l, two, ledger.Lease, ks[15:], out[10:]); !errors.Is(err, ledger.ErrBusy) {
		t.Fatalf("the class is full because of others: %v", err)
	}
	l.Unhold(one, ledger.Lease, ids(out[:10]))
	if n, err := holdTouch(l, one, ledger.Lease, ks, out); n != 5 || !errors.Is(err, ledger.ErrOverBudget) {
		t.Fatalf("not alone: %d, %v", n, err)
	}
	var refused *ledger.BudgetError
	if !errors.As(err, &refused) {
		t.Errorf("%v is not a BudgetError", err)
	}
	l.Unhold(one, ledger.Lease, ids(out[:5]))
	l.CloseOwner(two)
	if n, _ := holdTouch(l, one, ledger.Lease, ks, out); n != 10 {
		t.Fatalf("alone again: %d", n)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// TestCycles: a parent that stands on the chunk is none.
func TestCycles(t *testing.T) {
	l := newLedger(t, "lru", ledger.Limits{})
	a, b := key.Key{Hash: key.Hash{1}}, key.Key{Hash: key.Hash{2}}
	for _, claim := range []struct{ k, parent, want key.Key }{
		{key.Key{Hash: key.Hash{3}}, key.Key{Hash: key.Hash{3}}, key.Key{}}, // its own parent
		{a, b, b},
		{b, a, key.Key{}}, // its own grandparent
	} {
		id, _, err := l.Begin(0, ledger.Load, claim.k, claim.parent.Hash, 1)
		if got := l.Get(id).Parent; err != nil || got != claim.want.Hash {
			t.Errorf("%x below %x: its parent is %x, %v; want %x", claim.k.Hash, claim.parent.Hash, got, err, claim.want.Hash)
		}
		if err := l.Check(); err != nil {
			t.Error(err)
		}
	}
}

// A call that the books do not allow panics in tests. The daemon counts it, does not
// carry it out, and puts a resident entry aside: nobody finds it, or gets its memory.
func TestBrokenInvariants(t *testing.T) {
	calls := map[string]func(l *ledger.Ledger, ks []key.Key, got []ledger.ID){
		"publishing twice":  func(l *ledger.Ledger, _ []key.Key, got []ledger.ID) { l.Publish(got, false) },
		"aborting a result": func(l *ledger.Ledger, _ []key.Key, got []ledger.ID) { l.Abort(got[0]) },
		"naming a result":   func(l *ledger.Ledger, _ []key.Key, got []ledger.ID) { l.Rekey(got[0], key.Key{Hash: key.Hash{9}}) },
		"freeing a result":  func(l *ledger.Ledger, _ []key.Key, got []ledger.ID) { l.Free(got[0]) },
		"unhold of nothing": func(l *ledger.Ledger, _ []key.Key, got []ledger.ID) { l.Unhold(0, ledger.Pin, got[:1]) },
		"unhold of one that has left": func(l *ledger.Ledger, ks []key.Key, got []ledger.ID) {
			o := l.NewOwner()
			l.CloseOwner(o)
			next := l.NewOwner() // in the same place
			held := hold(t, l, next, ks[:1])
			defer l.CloseOwner(next)
			defer l.Unhold(next, ledger.Lease, held)
			l.Unhold(o, ledger.Lease, held)
		},
		"giving back too much": func(l *ledger.Ledger, _ []key.Key, got []ledger.ID) { l.Uncharge(0, ledger.Pin, 1) },
	}
	for what, call := range calls {
		l := newLedger(t, "lru", ledger.Limits{})
		var aside []key.Key
		l.NoteAside(func(e ledger.Entry) { aside = append(aside, e.Key) })
		ks := chain(1, 2)
		got := fill(t, l, ks, 0)
		l.Publish(got, false)
		before := l.Stats()
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s does not panic", what)
				}
			}()
			call(l, ks, got)
		}()
		if got := l.Stats(); got != before {
			t.Errorf("%s: a refused call changed something: %+v, was %+v", what, got, before)
		}
		checked(t, l)
		t.Run(what, func(t *testing.T) {
			t.Cleanup(base.SurviveBroken())
			reports := base.BrokenCount()
			call(l, ks, got)
			checked(t, l)
			s := l.Stats()
			if base.BrokenCount() == reports || s.UsedBytes != before.UsedBytes {
				t.Errorf("%d reports, %d bytes in use of %d", base.BrokenCount()-reports, s.UsedBytes, before.UsedBytes)
			}
			if len(aside) != s.AsideEntries || s.Entries+s.AsideEntries != len(ks) {
				t.Errorf("put aside: %x; %+v", aside, s)
			}
			for _, k := range aside {
				if _, st := l.Find(k); st != ledger.Absent {
					t.Errorf("%x is found", k.Hash)
				}
			}
			for range s.Entries {
				if v, ok := l.Evict(); ok {
					l.Free(v.ID)
				}
			}
			if left := l.Stats(); left.UsedBytes != s.AsideBytes || left.ProtectedBytes != s.AsideBytes {
				t.Errorf("what is put aside is given out: %+v", left)
			}
		})
	}
}

// Long batches go in several lock rounds; the order must not show it.
func TestBatchesBeyondOneRound(t *testing.T) {
	const n = 10_000
	l := newLedger(t, "lru", ledger.Limits{})
	ks := chain(1, n)
	held, err := l.PublishHeld(0, ledger.Pin, fill(t, l, ks, 0), true)
	if held != n || err != nil {
		t.Fatal(held, err)
	}
	out, have := make([]ledger.Entry, n), make([]bool, n)
	if got, err := holdTouch(l, 0, ledger.Lease, ks, out); got != n || err != nil {
		t.Fatal(got, err)
	}
	l.Lookup(ks, have)
	for i, ok := range have {
		if !ok || out[i].Key != ks[i] || !out[i].Dirty {
			t.Fatalf("chunk %d: %v, %+v", i, ok, out[i])
		}
	}
	l.Unhold(0, ledger.Lease, ids(out))
	l.Unhold(0, ledger.Pin, ids(out))
	from := l.Stats().Steps
	for i, k := range evictAll(t, l) {
		if k != ks[n-1-i] {
			t.Fatalf("victim %d is %v", i, k)
		}
	}
	if steps := l.Stats().Steps - from; steps > n*21/10 {
		t.Errorf("%d steps for %d chunks", steps, n)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// A Begin is told to wait only for entries that others hold: not for those of its
// own owner, nor for more room than there is.
func TestBusyIsOnlyWhatOthersCanEnd(t *testing.T) {
	l := newLedger(t, "lru", ledger.Limits{Total: 10 * page})
	ks := chain(1, 20)
	one := l.NewOwner()
	hold := func(o ledger.Owner, k key.Key, size uint32) (ledger.ID, error) {
		id, _, err := l.Begin(o, ledger.Lease, k, key.Hash{}, size)
		return id, err
	}
	for i := range 10 {
		if _, err := hold(one, ks[i], page); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := hold(one, ks[10], page); !errors.Is(err, ledger.ErrOverBudget) {
		t.Errorf("the room is full of its own: %v", err)
	}
	if _, err := hold(ledger.Daemon, ks[10], page); !errors.Is(err, ledger.ErrBusy) {
		t.Errorf("the daemon meets a client's holds: %v", err)
	}
	two := l.NewOwner()
	if _, err := hold(two, ks[10], page); !errors.Is(err, ledger.ErrBusy) {
		t.Errorf("another client's holds: %v", err)
	}
	if _, err := hold(two, ks[10], 11*page); !errors.Is(err, ledger.ErrOverBudget) {
		t.Errorf("more than there ever is: %v", err)
	}
}

// TestCool: the end of a chain, as far as no other chain shares it, goes first,
// tail first, under every policy; an entry that is used again is like any other,
// and a held one waits for its turn.
func TestCool(t *testing.T) {
	for _, name := range policy.Names() {
		p, err := policy.New(name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		l := ledger.New(ledger.Options{CapacityBytes: 1 << 20, Policy: p, PolicyName: name})
		put := func(n byte, parent byte) key.Key {
			k := key.Key{Hash: key.Hash{n}}
			id, _, err := l.Begin(ledger.Daemon, ledger.IO, k, key.Hash{parent}, 1)
			if err != nil {
				t.Fatal(err)
			}
			l.Publish([]ledger.ID{id}, false)
			return k
		}
		put(9, 0)
		put(1, 0) // 1-2-3-4, and 5 on 2
		put(2, 1)
		three := put(3, 2)
		put(4, 3)
		put(5, 2)
		put(8, 0)
		chain := []key.Hash{{1}, {2}, {3}, {4}}
		l.MarkCold(key.SpaceID{}, chain)
		var out [1]ledger.Entry
		if n, err := l.Hold(ledger.Daemon, ledger.IO, []key.Key{three}, out[:]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		want := func(hash byte) {
			t.Helper()
			e, ok := l.Evict()
			if !ok || e.Key.Hash[0] != hash {
				t.Errorf("%s: evicted %x, %v; want %x", name, e.Key.Hash[0], ok, hash)
			}
			l.Free(e.ID)
		}
		want(4)
		l.Unhold(ledger.Daemon, ledger.IO, []ledger.ID{out[0].ID})
		want(3)
		l.MarkCold(key.SpaceID{}, []key.Hash{{9}, {8}})
		l.Touch([]key.Key{{Hash: key.Hash{8}}})
		want(9)
		if _, st := l.Find(key.Key{Hash: key.Hash{2}}); st != ledger.Resident {
			t.Errorf("%s: what others hang on has gone", name)
		}
		if err := l.Check(); err != nil {
			t.Error(err)
		}
	}
}

// A request counts one use of the entries that it finds, also when it stores
// others behind them; and none more of an entry that was promoted for it.
func TestARequestIsOneUse(t *testing.T) {
	l := newLedger(t, "lfu", ledger.Limits{})
	put := func(k key.Key, parent key.Hash, held bool) {
		t.Helper()
		id, _, err := l.Begin(ledger.Daemon, ledger.IO, k, parent, page)
		if err != nil {
			t.Fatal(err)
		}
		if !held {
			l.Publish([]ledger.ID{id}, false)
			return
		}
		if _, err := l.PublishHeld(ledger.Daemon, ledger.IO, []ledger.ID{id}, false); err != nil {
			t.Fatal(err)
		}
		l.Unhold(ledger.Daemon, ledger.IO, []ledger.ID{id})
	}
	loaded, head, other := chain(1, 1), chain(2, 4), chain(3, 1)
	put(loaded[0], key.Hash{}, true)
	l.Touch(loaded) // used once: what it came for
	put(head[0], key.Hash{}, false)
	l.Touch(head[:1]) // twice
	put(other[0], key.Hash{}, false)
	l.Touch(other)
	l.Touch(other) // three times
	for i := 1; i < len(head); i++ {
		put(head[i], head[i-1].Hash, false)
	}
	var order []key.Key
	for e, ok := l.Evict(); ok; e, ok = l.Evict() {
		order = append(order, e.Key)
		l.Free(e.ID)
	}
	if want := []key.Key{loaded[0], head[3], head[2], head[1], head[0], other[0]}; !slices.Equal(order, want) {
		t.Errorf("evicted %v, want %v", order, want)
	}
}

// holdTouch holds the entries at the start of ks that are there, and counts that
// as a use.
func holdTouch(l *ledger.Ledger, o ledger.Owner, c ledger.Class, ks []key.Key, out []ledger.Entry) (int, error) {
	n, err := l.Hold(o, c, ks, out)
	l.Touch(ks[:n])
	return n, err
}

// What is put aside comes back never, so nobody waits for it.
func TestNothingIsWaitedForAside(t *testing.T) {
	t.Cleanup(base.SurviveBroken())
	l := newLedger(t, "lru", ledger.Limits{})
	ks := chain(1, 2)
	got := fill(t, l, ks, 0)
	l.Publish(got, false)
	o := l.NewOwner()
	held := hold(t, l, o, ks[:1])
	other := hold(t, l, ledger.Daemon, ks[1:])
	if !l.OthersHold(o, 0) {
		t.Error("the other chunk's holder is not told of")
	}
	l.Unhold(ledger.Daemon, ledger.Lease, other)
	l.PutAside(got[1], "is to go")
	if l.OthersHold(o, 0) || l.Stats().AsideEntries != 1 {
		t.Errorf("its own holder is to wait: %+v", l.Stats())
	}
	l.Unhold(o, ledger.Lease, held)
	l.CloseOwner(o)
	checked(t, l)
}
