package hint

import (
	"cmp"
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

var tableOps = flag.Int("retain.ops", 2500, "operations of TestTable")

// naive is the claims as the package comment has them, without any index.
type naive struct {
	now    time.Time
	limits ClaimLimits
	sizes  map[key.Key]int64 // of chunks that some claim has
	claims map[naiveKey]naiveClaim
	ends   map[Claimant]time.Time // of hard claims
}

type naiveKey struct {
	c Claimant
	h key.Hash
}

type naiveClaim struct{ until time.Time }

// tiers is a Store that remembers the claims, and the references that are held.
type tiers struct {
	claimed map[key.Key]bool
	held    map[ledger.ID]ledger.Owner
	last    ledger.ID
	t       *testing.T
	arena   *arena.Arena
}

func newTiers(t *testing.T) *tiers {
	a, err := arena.New(arena.Options{CapacityBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return &tiers{claimed: map[key.Key]bool{}, held: map[ledger.ID]ledger.Owner{}, t: t, arena: a}
}

func (s *tiers) Claim(space key.SpaceID, hs []key.Hash, claimed []bool) {
	for i, h := range hs {
		s.claimed[key.Key{Space: space, Hash: h}] = claimed[i]
	}
}

func (s *tiers) hold(o ledger.Owner, bytes int64) tier.Ref {
	b, err := s.arena.Alloc(int(bytes))
	if err != nil {
		s.t.Fatal(err)
	}
	s.last++
	s.held[s.last] = o
	return tier.Ref{ID: s.last, Block: b}
}

func (s *tiers) Release(o ledger.Owner, c ledger.Class, refs []tier.Ref) {
	for _, r := range refs {
		if by, is := s.held[r.ID]; !is || by != o || c != ledger.Pin {
			s.t.Errorf("owner %d releases %d of class %v, which owner %d holds: %v", o, r.ID, c, by, is)
		}
		delete(s.held, r.ID)
		r.Block.Release()
	}
}

func (n *naive) bytes(of func(Claimant) bool) (sum int64) {
	seen := map[key.Key]bool{}
	for at := range n.claims {
		if k := (key.Key{Space: at.c.Space, Hash: at.h}); of(at.c) && !seen[k] {
			seen[k] = true
			sum += n.sizes[k]
		}
	}
	return sum
}

func (n *naive) claimed(k key.Key) bool {
	for at := range n.claims {
		if at.c.Space == k.Space && at.h == k.Hash {
			return true
		}
	}
	return false
}

// held is how many chunks hard claims hold, by owner.
func (n *naive) held() map[ledger.Owner]int {
	out := map[ledger.Owner]int{}
	for at := range n.claims {
		if at.c.Connection != 0 {
			out[ledger.Owner(at.c.Connection)]++
		}
	}
	return out
}

func (n *naive) over(uid uint32) bool {
	return n.bytes(func(c Claimant) bool { return c.UID == uid }) > n.limits.UserBytes ||
		n.bytes(func(Claimant) bool { return true }) > n.limits.TotalBytes
}

func (n *naive) retain(table *Claims, c Claimant, hs []key.Hash, sizes []int64, d time.Duration) (done int) {
	until := n.now.Add(min(d, n.limits.Duration))
	for i, h := range hs {
		at, k := naiveKey{c, h}, key.Key{Space: c.Space, Hash: h}
		size, known := n.sizes[k]
		if !known {
			n.sizes[k] = sizes[i]
		} else if size == 0 && sizes[i] > 0 {
			n.sizes[k] = sizes[i]
			n.shed(table, k)
			n.sizes[k] = sizes[i]
		}
		_, had := n.claims[at]
		n.claims[at] = naiveClaim{until}
		if !had && n.over(c.UID) {
			delete(n.claims, at)
			n.tidy()
			return i
		}
		if c.Connection != 0 && until.After(n.ends[c]) {
			n.ends[c] = until
		}
	}
	return len(hs)
}

// past reports whether a claim's time is over.
func (n *naive) past(at naiveKey, c naiveClaim) bool {
	return !c.until.After(n.now) && !n.ends[at.c].After(n.now)
}

// tidy forgets the sizes of chunks that no claim has.
func (n *naive) tidy() {
	for k := range n.sizes {
		if !n.claimed(k) {
			delete(n.sizes, k)
		}
	}
	has := map[Claimant]bool{}
	for at := range n.claims {
		has[at.c] = true
	}
	maps.DeleteFunc(n.ends, func(c Claimant, _ time.Time) bool { return !has[c] })
}

func (n *naive) release(gone func(naiveKey, naiveClaim) bool) {
	for at, c := range n.claims {
		if gone(at, c) {
			delete(n.claims, at)
		}
	}
	n.tidy()
}

// TestTable compares a table with a naive one over random retains, extensions,
// releases, sizes that become known, and the passing of time.
func TestTable(t *testing.T) {
	const chunks = 24
	rnd := rand.New(rand.NewPCG(1, 1))
	store := newTiers(t)
	limits := ClaimLimits{TotalBytes: 40, UserBytes: 25, Duration: 200 * time.Second}
	table := NewClaims(store, limits)
	m := &naive{now: time.Unix(0, 0), limits: limits, sizes: map[key.Key]int64{}, claims: map[naiveKey]naiveClaim{}, ends: map[Claimant]time.Time{}}
	table.now = func() time.Time { return m.now }
	size := func(h key.Hash) int64 { return 1 + int64(h[0])%3 }
	for op := range *tableOps {
		c := Claimant{UID: uint32(rnd.IntN(3)), Space: key.SpaceID{byte(rnd.IntN(2))}, Name: strconv.Itoa(rnd.IntN(3)), Connection: uint64(max(0, rnd.IntN(5)-2))}
		var hs []key.Hash
		var sizes []int64
		first := rnd.IntN(chunks)
		for i := first; i < min(chunks, first+1+rnd.IntN(8)); i++ {
			h := key.Hash{byte(i + 1)}
			hs = append(hs, h)
			known, ok := m.sizes[key.Key{Space: c.Space, Hash: h}]
			if !ok && rnd.IntN(3) > 0 || c.Connection != 0 {
				known = size(h)
			}
			sizes = append(sizes, known)
		}
		switch rnd.IntN(10) {
		case 0, 1, 2, 3, 4:
			d := time.Duration(rnd.IntN(300)) * time.Second
			n, err := m.claim(table, store, c, hs, sizes, d)
			if want := m.retain(table, c, hs, sizes, d); n != want || (err == nil) != (want == len(hs)) || err != nil && !errors.Is(err, errOver) {
				t.Fatalf("op %d: %d are retained, %v; want %d", op, n, err, want)
			}
		case 5:
			in := map[key.Hash]bool{}
			for _, h := range hs {
				in[h] = true
			}
			table.Release(c, hs)
			m.release(func(at naiveKey, _ naiveClaim) bool { return at.c == c && in[at.h] })
		case 6:
			if rnd.IntN(2) == 0 {
				table.ReleaseAll(c)
				m.release(func(at naiveKey, _ naiveClaim) bool { return at.c == c })
				break
			}
			table.End(c.Connection, func(by *Claimant) bool { return by.UID == c.UID })
			m.release(func(at naiveKey, _ naiveClaim) bool {
				return at.c.Connection != 0 && (c.Connection == 0 || at.c.Connection == c.Connection) && at.c.UID == c.UID
			})
		case 7, 8:
			h := hs[0]
			k := key.Key{Space: c.Space, Hash: h}
			table.Stored(k, size(h), nil)
			if have, ok := m.sizes[k]; ok && have == 0 {
				m.sizes[k] = size(h)
				m.shed(table, k)
			}
		case 9:
			m.now = m.now.Add(time.Duration(rnd.IntN(60)) * time.Second)
			table.Expire()
			m.release(m.past)
		}
		m.compare(t, op, table, store, chunks)
	}
	m.now = m.now.Add(time.Hour)
	table.Expire()
	if st := table.Stats(); st.Chunks+st.Bytes+st.Claimants+st.MemoryBytes != 0 || len(table.mu.users)+len(table.mu.due) != 0 {
		t.Errorf("something is left: %+v, %d users, %d deadlines", st, len(table.mu.users), len(table.mu.due))
	}
}

// claim claims chunks, soft or hard.
func (m *naive) claim(table *Claims, s *tiers, c Claimant, hs []key.Hash, sizes []int64, d time.Duration) (int, error) {
	if c.Connection == 0 {
		return table.Retain(c, hs, sizes, d)
	}
	var refs []tier.Ref
	for _, n := range sizes {
		refs = append(refs, s.hold(ledger.Owner(c.Connection), n))
	}
	return table.Pin(c, ledger.Owner(c.Connection), hs, refs, d)
}

// shed takes over which claimants lost a chunk that was larger than there was room
// for: any whose user, or all together, had too much.
func (m *naive) shed(table *Claims, k key.Key) {
	before := m.claims
	m.claims = map[naiveKey]naiveClaim{}
	for at, c := range before {
		over := m.overWith(before, at.c.UID)
		if at.c.Space != k.Space || at.h != k.Hash || !over || at.c.Connection != 0 || table.mu.chunks[k].of(table.mu.holders[at.c]) != nil {
			m.claims[at] = c
		}
	}
	m.tidy()
}

func (m *naive) overWith(claims map[naiveKey]naiveClaim, uid uint32) bool {
	with := &naive{limits: m.limits, sizes: m.sizes, claims: claims}
	return with.over(uid)
}

func (m *naive) compare(t *testing.T, op int, table *Claims, store *tiers, chunks int) {
	t.Helper()
	for s := range 2 {
		for i := range chunks {
			k := key.Key{Space: key.SpaceID{byte(s)}, Hash: key.Hash{byte(i + 1)}}
			if want := m.claimed(k); store.claimed[k] != want {
				t.Fatalf("op %d: chunk %d of space %d is claimed: %v, want %v", op, i, s, store.claimed[k], want)
			}
		}
	}
	held := map[ledger.Owner]int{}
	for _, o := range store.held {
		held[o]++
	}
	if want := m.held(); !maps.Equal(held, want) {
		t.Fatalf("op %d: owners hold %v, want %v", op, held, want)
	}
	if op%16 == 0 {
		m.compareLists(t, op, table)
	}
	if got, want := table.Stats().Bytes, m.bytes(func(Claimant) bool { return true }); got != want {
		t.Fatalf("op %d: %d bytes are retained, want %d", op, got, want)
	}
	for uid := range uint32(3) {
		want := m.bytes(func(c Claimant) bool { return c.UID == uid })
		if u := table.mu.users[uid]; u != nil && u.bytes != want || u == nil && want > 0 {
			t.Fatalf("op %d: user %d retains %+v, want %d bytes", op, uid, u, want)
		}
		if want > m.limits.UserBytes {
			t.Fatalf("op %d: user %d retains %d bytes, of %d", op, uid, want, m.limits.UserBytes)
		}
	}
}

// TestMemory: the table refuses claims that it has no memory for, and each user has half
// of what the others leave, so that one more can always claim something.
func TestMemory(t *testing.T) {
	table := NewClaims(newTiers(t), ClaimLimits{TotalBytes: 1 << 60, UserBytes: 1 << 60, Duration: time.Hour})
	for uid := range uint32(4) {
		n, err := 0, error(nil)
		for ; err == nil; n++ {
			_, err = table.Retain(Claimant{UID: uid}, []key.Hash{{byte(uid), byte(n), byte(n >> 8), byte(n >> 16)}}, []int64{1}, time.Hour)
		}
		if !errors.Is(err, errOver) || n < 10_000 {
			t.Errorf("user %d: %d chunks, then %v", uid, n, err)
		}
	}
	if n := table.Stats().MemoryBytes; n > maxMemory {
		t.Errorf("%d bytes, of %d", n, maxMemory)
	}
}

// TestOneUserFills: a user that retains 300,000 chunks, in spaces and under names of
// its own, takes nothing away from another one.
func TestOneUserFills(t *testing.T) {
	table := NewClaims(newTiers(t), ClaimLimits{TotalBytes: 1 << 60, UserBytes: 1 << 60, Duration: time.Hour})
	given := 0
	for n := range 300_000 {
		c := Claimant{UID: 1, Space: key.SpaceID{byte(n)}, Name: string(rune('a' + n%26))}
		k, _ := table.Retain(c, []key.Hash{{byte(n), byte(n >> 8), byte(n >> 16)}}, []int64{1}, time.Hour)
		given += k
	}
	if n := table.Stats().MemoryBytes; given > 200_000 || n > maxMemory/2 {
		t.Errorf("one user retains %d chunks in %d bytes of %d", given, n, maxMemory)
	}
	hs := make([]key.Hash, 10_000)
	for i := range hs {
		hs[i] = key.Hash{1, byte(i), byte(i >> 8)}
	}
	if n, err := table.Retain(Claimant{UID: 2}, hs, make([]int64, len(hs)), time.Hour); n != len(hs) {
		t.Errorf("another user retains %d of %d chunks: %v", n, len(hs), err)
	}
	table.mu.Lock()
	defer table.mu.Unlock()
	if n := len(table.mu.users); n != 2 {
		t.Errorf("%d users are known", n)
	}
}

// TestPinAnew: a chunk that was deleted and stored again under a pin is held as it is now.
func TestPinAnew(t *testing.T) {
	store := newTiers(t)
	table := NewClaims(store, ClaimLimits{TotalBytes: 10, UserBytes: 10, Duration: time.Hour})
	by, hs := Claimant{Name: "x", Connection: 3}, []key.Hash{{1}}
	first, again := store.hold(3, 1), store.hold(3, 1)
	for _, ref := range []tier.Ref{first, again} {
		if n, err := table.Pin(by, 3, hs, []tier.Ref{ref}, time.Hour); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if _, held := store.held[ref.ID]; !held || len(store.held) > 2 {
			t.Errorf("%v are held, not %d", store.held, ref.ID)
		}
	}
	if _, held := store.held[first.ID]; held {
		t.Error("the first one is held still")
	}
	if n := table.End(0, func(*Claimant) bool { return true }); n != 1 || len(store.held) != 0 || table.Stats().MemoryBytes != 0 {
		t.Errorf("%d were claimed, and %v are held", n, store.held)
	}
}

// TestPinsOfAConnection: a connection has so many pins, and others have theirs; one that ends
// makes room.
func TestPinsOfAConnection(t *testing.T) {
	store := newTiers(t)
	table := NewClaims(store, ClaimLimits{TotalBytes: 10, UserBytes: 10, Duration: time.Hour})
	pin := func(connection uint64, name int) error {
		_, err := table.Pin(Claimant{Name: strconv.Itoa(name), Connection: connection}, 3, []key.Hash{{1}}, []tier.Ref{store.hold(3, 1)}, time.Hour)
		return err
	}
	for i := range MaxPins {
		if err := pin(1, i); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := pin(1, MaxPins); !errors.Is(err, errOver) {
		t.Errorf("one more: %v", err)
	}
	if err := cmp.Or(pin(1, 0), pin(2, 0)); err != nil {
		t.Errorf("a name that is there, and another connection: %v", err)
	}
	if n := table.End(0, func(by *Claimant) bool { return by.Name == "7" }); n != 1 || pin(1, MaxPins) != nil {
		t.Errorf("no room for a pin, where %d have ended", n)
	}
	table.End(0, func(*Claimant) bool { return true })
	if len(store.held)+len(table.mu.pins) != 0 {
		t.Errorf("%v are held, of connections %v", store.held, table.mu.pins)
	}
}

// TestPinsHold: what a pin was told to hold is held, also where the chunk proves
// larger than a user may claim, and where a name is pinned again all of it lasts as long.
func TestPinsHold(t *testing.T) {
	store := newTiers(t)
	table := NewClaims(store, ClaimLimits{TotalBytes: 100, UserBytes: 10, Duration: time.Hour})
	now := time.Unix(0, 0)
	table.now = func() time.Time { return now }
	soft, hard := Claimant{UID: 1, Name: "soft"}, Claimant{UID: 2, Name: "hard", Connection: 3}
	if n, err := table.Retain(soft, []key.Hash{{1}}, []int64{0}, time.Minute); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	pin := func(h byte, bytes int64, d time.Duration) (int, error) {
		return table.Pin(hard, 3, []key.Hash{{h}}, []tier.Ref{store.hold(3, bytes)}, d)
	}
	if n, err := pin(1, 12, time.Minute); n != 0 || !errors.Is(err, errOver) {
		t.Errorf("a pin of more than a user may have: %d, %v", n, err)
	}
	if n, err := pin(2, 6, time.Minute); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	table.Stored(key.Key{Hash: key.Hash{1}}, 12, nil)
	now = now.Add(30 * time.Second)
	if n, err := pin(3, 3, time.Minute); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	now = now.Add(45 * time.Second)
	if next := table.Expire(); len(store.held) != 2 || !next.Equal(now.Add(15*time.Second)) {
		t.Errorf("%d chunks are held, until %v", len(store.held), next)
	}
	now = now.Add(15 * time.Second)
	if next := table.Expire(); len(store.held) != 0 || !next.IsZero() {
		t.Errorf("%d chunks are held after their time, until %v", len(store.held), next)
	}
}

// TestPinOfRounds: what does not fit of a long pin is given back.
func TestPinOfRounds(t *testing.T) {
	store := newTiers(t)
	table := NewClaims(store, ClaimLimits{TotalBytes: 1100, UserBytes: 1100, Duration: time.Hour})
	var hs []key.Hash
	var refs []tier.Ref
	for i := range 1800 {
		hs, refs = append(hs, key.Hash{byte(i), byte(i >> 8)}), append(refs, store.hold(3, 1))
	}
	n, err := table.Pin(Claimant{Name: "long", Connection: 3}, 3, hs, refs, time.Hour)
	if n != 1100 || !errors.Is(err, errOver) || len(store.held) != n {
		t.Errorf("%d are pinned, %v, and %d held", n, err, len(store.held))
	}
}

// TestMemoryOfTurnover: what many claims leave behind is as small as what is left of them.
func TestMemoryOfTurnover(t *testing.T) {
	table := NewClaims(newTiers(t), ClaimLimits{TotalBytes: 1 << 30, UserBytes: 1 << 30, Duration: time.Hour})
	hs := make([]key.Hash, 20_000)
	for i := range hs {
		hs[i] = key.Hash{byte(i), byte(i >> 8)}
	}
	for name := range 3 {
		c := Claimant{Name: strconv.Itoa(name)}
		if n, err := table.Retain(c, hs, make([]int64, len(hs)), time.Hour); n != len(hs) || err != nil {
			t.Fatal(n, err)
		}
		table.Release(c, hs[1:])
		if h := table.mu.holders[c]; h.peak > 1<<10 {
			t.Errorf("%d chunks, and a map for %d", len(h.chunks), h.peak)
		}
	}
	for name := range 5000 {
		if _, err := table.Retain(Claimant{Name: strconv.Itoa(name)}, hs[:1], []int64{0}, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	for name := 1; name < 5000; name++ {
		table.ReleaseAll(Claimant{Name: strconv.Itoa(name)})
	}
	if g := table.mu.chunks[key.Key{Hash: hs[0]}].grants; len(g) != 1 || cap(g) > 16 {
		t.Errorf("%d grants, and room for %d", len(g), cap(g))
	}
	if n := table.Release(Claimant{Name: "0"}, nil); n != 0 {
		t.Errorf("releasing nothing released %d chunks", n)
	}
}
