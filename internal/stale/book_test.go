package stale

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kvstored/kvstored/key"
)

// clock is a wall clock that a test sets, beside time that only goes on.
type clock struct {
	begun time.Time
	since time.Duration // of the monotonic clock
	set   time.Duration // by how much the wall clock was set
}

func (c *clock) book() *Book {
	return newBook(c.begun, func() time.Time { return c.begun.Add(c.since) }, func() int64 {
		return c.begun.Add(c.since + c.set).Unix()
	})
}

func newClock() *clock { return &clock{begun: time.Unix(1_700_000_000, 0)} }

func keyOf(space, n byte) key.Key {
	return key.Key{Space: key.SpaceID{space}, Hash: key.Hash{n, 1}}
}

func hashes(ks ...key.Key) (hs []key.Hash) {
	for _, k := range ks {
		hs = append(hs, k.Hash)
	}
	return hs
}

// TestShorterCounts: of the TTL of a space and that of a request the shorter counts,
// and without either a chunk stays.
func TestShorterCounts(t *testing.T) {
	for name, c := range map[string]struct {
		space, request, lives time.Duration
	}{
		"none": {0, 0, 0}, "the space's": {time.Minute, 0, time.Minute}, "the request's": {0, time.Minute, time.Minute},
		"the space's is shorter":   {time.Minute, time.Hour, time.Minute},
		"the request's is shorter": {time.Hour, time.Minute, time.Minute},
		"a part of a second":       {0, 2500 * time.Millisecond, 2 * time.Second},
	} {
		at := newClock()
		b, k := at.book(), keyOf(1, 1)
		b.Open(k.Space, c.space)
		b.Stored(k.Space, hashes(k), c.request)
		if c.lives == 0 {
			if at.since = 100 * 365 * 24 * time.Hour; b.Expired(k) || b.Of(k).HasTTL() {
				t.Errorf("%s: it has a TTL", name)
			}
			continue
		}
		at.since = c.lives - time.Second
		before := b.Expired(k)
		at.since = c.lives
		if after := b.Expired(k); before || !after {
			t.Errorf("%s: expired a second before: %t, then: %t", name, before, after)
		}
	}
}

// TestClockSetBack: a clock that is set back while the process runs lengthens nothing,
// one that is set forward shortens; and an expiry from further ahead than Slack has expired.
func TestClockSetBack(t *testing.T) {
	at, k := newClock(), keyOf(1, 1)
	b := at.book()
	b.Stored(k.Space, hashes(k), time.Hour)
	at.since, at.set = 59*time.Minute, -24*time.Hour
	if b.Expired(k) {
		t.Error("expired after 59 minutes")
	}
	if at.since = time.Hour; !b.Expired(k) {
		t.Error("the clock was set back, and the chunk has not expired after an hour")
	}
	if at.since, at.set = time.Minute, time.Hour; !b.Expired(k) {
		t.Error("the clock is past its end, and it has not expired")
	}

	// Another process, of which the clock is behind that of the one before.
	s := b.Of(k)
	later := newClock()
	later.begun = later.begun.Add(-Slack)
	if next := later.book(); !next.Found(k, s) || next.Expired(k) {
		t.Error("an expiry within the slack has expired")
	}
	later.begun = later.begun.Add(-time.Second)
	next := later.book()
	if !next.Ahead(s) || next.Found(k, s) || !next.Expired(k) {
		t.Error("an expiry from further ahead has not expired")
	}
	later.since = 2 * slotSeconds * time.Second
	if ks, _ := next.Due(8); !slices.Equal(ks, []key.Key{k}) || !next.Expired(k) {
		t.Errorf("due: %v, expired: %t", ks, next.Expired(k))
	}
}

// TestFoundKeepsTheEarlierEnd: a tier never lengthens a known expiry, and the TTL of a
// space holds for chunks without an end of their own.
func TestFoundKeepsTheEarlierEnd(t *testing.T) {
	at, k := newClock(), keyOf(1, 1)
	b := at.book()
	now := b.Now()
	b.Open(k.Space, 0)
	if !b.Found(k, Expiry{Stored: now + 1e6}) || b.Of(k).HasTTL() {
		t.Error("a chunk without an end, of a clock that is ahead, has expired")
	}
	if !b.Found(k, Expiry{Stored: now}) || b.Of(k).HasTTL() {
		t.Error("a chunk without an end has one")
	}
	b.Found(k, Expiry{now, now + 100})
	b.Found(k, Expiry{now, now + 200})
	if s := b.Of(k); s.Expires != now+100 {
		t.Errorf("ends at %d, want %d", s.Expires, now+100)
	}
	b.Found(k, Expiry{now, now + 50})
	b.Found(k, Expiry{Stored: now})
	if b.Found(k, Expiry{now - 9, now}) {
		t.Error("a copy that has expired may be used")
	}
	if s := b.Of(k); s.Expires != now+50 {
		t.Errorf("ends at %d, want %d", s.Expires, now+50)
	}
	old := keyOf(2, 1)
	b.Open(old.Space, time.Minute)
	if b.Found(old, Expiry{Stored: now - 60}) || !b.Found(keyOf(2, 2), Expiry{Stored: now - 59}) {
		t.Error("the TTL of the space does not count from when a chunk was stored")
	}
}

// TestStoredAnew: a chunk that is stored again without a TTL has none, also where it
// is told as due or removed only then.
func TestStoredAnew(t *testing.T) {
	at, k := newClock(), keyOf(1, 1)
	b := at.book()
	b.Stored(k.Space, hashes(k), time.Second)
	at.since = time.Minute
	ks, _ := b.Due(8)
	if !slices.Equal(ks, []key.Key{k}) {
		t.Fatalf("due: %v", ks)
	}
	b.Stored(k.Space, hashes(k), 0)
	b.Again(ks)
	b.Removed(ks)
	if again, more := b.Due(8); len(again) > 0 || more || b.Expired(k) {
		t.Errorf("due again: %v", again)
	}
	b.Stored(k.Space, hashes(k), time.Hour)
	b.Removed(ks)
	if !b.Of(k).HasTTL() {
		t.Error("the expiry of the new chunk was forgotten")
	}
}

// TestBoundOfAnOpenSpace: a TTL holds while a client has the space open, and a reload
// changes it for chunks stored from then on; a shorter one is told to the caller.
func TestBoundOfAnOpenSpace(t *testing.T) {
	b, id := newClock().book(), key.SpaceID{1}
	dies := func(n byte) uint32 {
		k := keyOf(1, n)
		b.Stored(id, hashes(k), 0)
		if s := b.Of(k); s.HasTTL() {
			return s.Expires - b.Now()
		}
		return 0
	}
	b.Open(id, 0)
	if b.Open(id, 0) || dies(1) != 0 {
		t.Error("a space without a TTL has one")
	}
	if !b.SetTTL(id, time.Hour) || b.SetTTL(id, 2*time.Hour) || !b.SetTTL(id, time.Minute) {
		t.Error("what is shorter is told wrongly")
	}
	b.Shorten(id, []key.Key{keyOf(1, 1)}, time.Minute)
	if got := b.Of(keyOf(1, 1)).Expires - b.Now(); got != 60 {
		t.Errorf("a chunk that was there ends in %d s, want 60", got)
	}
	if b.Close(id); dies(2) != 60 {
		t.Error("one of two has closed the space, and the TTL is gone")
	}
	b.Stored(id, hashes(keyOf(1, 1), keyOf(1, 2)), 0)
	b.SetTTL(id, 0)
	b.Stored(id, hashes(keyOf(1, 1), keyOf(1, 2)), 0)
	b.Close(id)
	if n := len(b.mu.spaces); n > 0 || b.Stats().Chunks > 0 {
		t.Errorf("%d spaces and %d expiries are left", n, b.Stats().Chunks)
	}
}

// TestPrune: expiries of chunks that are gone are dropped, not before Grace is over, and
// nothing is left of them.
func TestPrune(t *testing.T) {
	at := newClock()
	b := at.book()
	var ks []key.Key
	for i := range 2000 {
		k := key.Key{Space: key.SpaceID{byte(i % 3)}, Hash: key.Hash{byte(i), byte(i >> 8), 1}}
		ks = append(ks, k)
		b.Stored(k.Space, hashes(k), time.Duration(1+i%1000)*time.Hour)
	}
	odd := func(part []key.Key) ([]bool, bool) {
		is := make([]bool, len(part))
		for i, k := range part {
			is[i] = k.Hash[0]%2 == 1
		}
		return is, true
	}
	if b.Prune(odd); b.Stats().Chunks != 2000 {
		t.Fatalf("%d are left at once", b.Stats().Chunks)
	}
	at.since = Grace
	if b.Prune(odd); b.Stats().Chunks != 1000 {
		t.Fatalf("%d are left, want 1000", b.Stats().Chunks)
	}
	b.Prune(func(part []key.Key) ([]bool, bool) {
		is := make([]bool, len(part))
		for i := range is {
			is[i] = true
		}
		return is, true
	})
	if st := b.Stats(); st.Chunks > 0 || len(b.mu.slots.lists) > 0 || len(b.mu.spaces) > 0 {
		t.Errorf("left: %+v, %d slots, %d spaces", st, len(b.mu.slots.lists), len(b.mu.spaces))
	}
	for _, k := range ks {
		if b.Of(k).HasTTL() {
			t.Fatal("an expiry is left")
		}
	}
}

// TestAgainstAMap: random calls give what a map of ends gives, each chunk that has expired is
// told as due within a slot, and none that is not.
func TestAgainstAMap(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 20))
		at := newClock()
		b := at.book()
		ends, told := map[key.Key]uint32{}, map[key.Key]bool{}
		bound := [3]time.Duration{0, 20 * time.Second, 90 * time.Second}
		for i, d := range bound {
			b.Open(key.SpaceID{byte(i)}, d)
		}
		for range 5000 {
			k := keyOf(byte(rng.IntN(3)), byte(rng.IntN(60)))
			now := b.Now()
			switch rng.IntN(5) {
			case 0:
				d := time.Duration(rng.IntN(3)) * time.Duration(rng.IntN(40)) * time.Second
				b.Stored(k.Space, hashes(k), d)
				if most := shorter(uint32(d/time.Second), uint32(bound[k.Space[0]]/time.Second)); most > 0 {
					ends[k] = now + most
				} else {
					delete(ends, k)
				}
				delete(told, k)
			case 1:
				s := Expiry{now - uint32(rng.IntN(30)), now + uint32(rng.IntN(60))}
				if most := uint32(bound[k.Space[0]] / time.Second); most > 0 {
					s.Expires = min(s.Expires, s.Stored+most)
				}
				b.Found(k, s)
				if end, has := ends[k]; !has || s.Expires < end && (s.Expires > now || end <= now) {
					ends[k] = s.Expires
					delete(told, k)
				}
			case 2:
				at.since += time.Duration(rng.IntN(4000)) * time.Millisecond
			default:
				if end, has := ends[k]; b.Expired(k) != (has && now >= end) {
					t.Fatalf("seed %d: expired is %t at %d, the end is %d", seed, b.Expired(k), now, end)
				}
			}
			if rng.IntN(20) > 0 {
				continue
			}
			for more := true; more; {
				var ks []key.Key
				ks, more = b.Due(1 + rng.IntN(3))
				var gone []key.Key
				for _, k := range ks {
					if slices.Contains(gone, k) {
						continue
					}
					if end, has := ends[k]; !has || b.Now() < end {
						t.Fatalf("seed %d: due, and its end is %d at %d", seed, end, b.Now())
					}
					if told[k] = true; rng.IntN(3) == 0 {
						gone = append(gone, k)
						delete(ends, k)
						delete(told, k)
					}
				}
				b.Removed(gone)
			}
			for k, end := range ends {
				if b.Now() >= end+2*slotSeconds && !told[k] {
					t.Fatalf("seed %d: %v has expired since %d s and was not told", seed, k, b.Now()-end)
				}
			}
			n := 0
			b.EachExpired(key.SpaceID{1}, []key.Hash{keyOf(1, 3).Hash, keyOf(1, 4).Hash}, func(i int) {
				if !b.Expired(keyOf(1, byte(3+i))) {
					t.Fatal("Each and Over differ")
				}
				n++
			})
			if b.Stats().Chunks != len(ends) {
				t.Fatalf("seed %d: %d expiries, want %d", seed, b.Stats().Chunks, len(ends))
			}
		}
	}
}

// TestDueAfterALeap: a clock that leaps years ahead has all told, in bounded steps.
func TestDueAfterALeap(t *testing.T) {
	at := newClock()
	b := at.book()
	for i := range byte(200) {
		b.Stored(key.SpaceID{1}, []key.Hash{{i, 1}}, time.Duration(1+int(i))*time.Hour)
	}
	at.set = 5 * 365 * 24 * time.Hour
	told, calls := 0, 0
	for more := true; more; calls++ {
		var ks []key.Key
		ks, more = b.Due(64)
		told += len(ks)
	}
	if told != 200 || calls > 200 {
		t.Errorf("%d of 200 were told, in %d calls", told, calls)
	}
	b.Stored(key.SpaceID{1}, []key.Hash{{1}}, time.Minute) // and the clock is set right again
	if at.set, at.since = 0, time.Hour; !b.Expired(key.Key{Space: key.SpaceID{1}, Hash: key.Hash{1}}) {
		t.Error("a chunk of the time ahead has not expired")
	}
	b.Stored(key.SpaceID{1}, []key.Hash{{2}}, time.Minute)
	at.since += time.Minute + slotSeconds*time.Second
	if ks, _ := b.Due(8); !slices.Contains(ks, key.Key{Space: key.SpaceID{1}, Hash: key.Hash{2}}) {
		t.Errorf("due after the clock was set right: %v", ks)
	}
}

// TestRenews: only a copy that was stored since the known chunk had expired, and has not expired
// itself, renews it.
func TestRenews(t *testing.T) {
	at, k := newClock(), keyOf(1, 1)
	b := at.book()
	if b.Renews(k, Expiry{}) {
		t.Error("without an expiry")
	}
	b.Open(k.Space, 10*time.Minute)
	b.Stored(k.Space, hashes(k), time.Minute)
	end := b.Of(k).Expires
	if at.since = 59 * time.Second; b.Renews(k, Expiry{end, end + 60}) {
		t.Error("before the end")
	}
	at.since = 2 * time.Minute
	now := b.Now()
	for s, want := range map[Expiry]bool{
		{end, now + 1}:          true,
		{end - 1, now + 1}:      false, // the one that is known, or as old
		{end, now}:              false,
		{Stored: end}:           true,
		{Stored: end - 1}:       false,
		{now + 3600, now + 9e3}: true, // whose clock is wrong cannot be told
	} {
		if got := b.Renews(k, s); got != want {
			t.Errorf("%+v at %d, expired since %d: %t", s, now, end, got)
		}
	}
	if at.since = time.Hour; b.Renews(k, Expiry{Stored: end}) {
		t.Error("the TTL of the space does not count")
	}
}

// TestNil: a tier without a book has no ages.
func TestNil(t *testing.T) {
	var b *Book
	k := keyOf(1, 1)
	if b.Expired(k) || b.Of(k).HasTTL() || !b.Found(k, Expiry{1, 2}) || b.Ahead(Expiry{1, 2}) || b.Now() == 0 || b.Stats() != (Stats{}) {
		t.Error("a nil book knows something")
	}
	b.EachExpired(k.Space, hashes(k), func(int) { t.Error("over") })
	b.Prune(nil)
	if ks, more := b.Due(1); len(ks) > 0 || more {
		t.Error("due")
	}
}

// TestNoAllocations: chunks without a TTL cost nothing.
func TestNoAllocations(t *testing.T) {
	b, k := New(), keyOf(1, 1)
	b.Open(k.Space, 0)
	hs := hashes(k)
	if n := testing.AllocsPerRun(100, func() {
		b.Stored(k.Space, hs, 0)
		b.EachExpired(k.Space, hs, func(int) {})
		b.Expired(k)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
