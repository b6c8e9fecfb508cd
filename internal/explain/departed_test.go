package explain

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/kvstored/kvstored/key"
)

// used is how many chunks are known.
func (l *Departed) used() (n int) {
	if l == nil {
		return 0
	}
	for _, e := range l.mu.entries {
		if e.sum != 0 {
			n++
		}
	}
	return n
}

// since is when the chunk left, to the second.
func (n Note) since(begun time.Time) time.Duration { return time.Unix(int64(n.At), 0).Sub(begun) }

func keyOf(n int) (k key.Key) {
	k.Hash[0], k.Hash[1], k.Space[3] = byte(n), byte(n>>8), byte(n>>16)
	return k
}

// departedModel is a log without a bound on its memory but that of each bucket, as lists.
type departedModel struct {
	log     *Departed
	buckets map[uint64][]modelEntry // oldest first
}

type modelEntry struct {
	k key.Key
	n Note
}

func (m *departedModel) bucket(k key.Key) uint64 { return m.log.sum(&k) % m.log.buckets }

func (m *departedModel) find(k key.Key) (n Note) {
	for _, e := range m.buckets[m.bucket(k)] {
		if e.k == k {
			return e.n
		}
	}
	return n
}

func (m *departedModel) remove(k key.Key) {
	at := m.bucket(k)
	var kept []modelEntry
	for _, e := range m.buckets[at] {
		if e.k != k {
			kept = append(kept, e)
		}
	}
	m.buckets[at] = kept
}

func (m *departedModel) add(k key.Key, n Note) {
	m.remove(k)
	at := m.bucket(k)
	m.buckets[at] = append(m.buckets[at], modelEntry{k, n})
	if len(m.buckets[at]) > bucketSize {
		m.buckets[at] = m.buckets[at][1:]
	}
}

// TestModel: the log answers as lists of the last chunks noted in each bucket do.
func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 24))
			l := NewDeparted(1 + r.IntN(200))
			m := &departedModel{l, make(map[uint64][]modelEntry)}
			for range 5000 {
				k, tier, why := keyOf(r.IntN(400)), uint8(r.IntN(3)), uint8(r.IntN(200))
				had := m.find(k)
				switch r.IntN(6) {
				case 0:
					kind := []Reason{Evicted, Declined, Deleted, Corrupt, Gap}[r.IntN(5)]
					l.Add(k, Note{Reason: kind, Tier: tier, Detail: why})
					m.add(k, Note{Reason: kind, Tier: tier, Detail: why})
				case 1:
					keeps := r.IntN(2) == 0
					l.Evict(k, tier, why, keeps)
					if !keeps || had.Reason != Declined || had.Tier == tier {
						m.add(k, Note{Reason: Evicted, Tier: tier, Detail: why})
					}
				case 2:
					l.Add(k, Note{Reason: Declined, Tier: tier, Detail: why})
					m.add(k, Note{Reason: Declined, Tier: tier, Detail: why})
				case 3:
					l.DeclineNew(k, tier, why)
					if had.Reason == Nothing {
						m.add(k, Note{Reason: Declined, Tier: tier, Detail: why})
					}
				case 4:
					if l.Taken(k); had.Reason == Declined {
						m.remove(k)
					}
				}
				k = keyOf(r.IntN(400))
				got, want := l.Find(k), m.find(k)
				if got.Reason != want.Reason || got.Tier != want.Tier || got.Detail != want.Detail {
					t.Fatalf("seed %d: %v is %+v, want %+v", seed, k, got, want)
				}
			}
			n := 0
			for _, b := range m.buckets {
				n += len(b)
			}
			if l.used() != n {
				t.Errorf("the log has %d chunks, want %d", l.used(), n)
			}
		}
	})
}

// TestSince: what a tier evicts after a chunk is how much larger it had to be; that
// of other tiers does not count, and a log is not misled by wrapped numbers.
func TestSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewDeparted(8)
		l.Leaving(1, 1<<48-1<<20) // the marks wrap at 1<<48 bytes
		l.Evict(keyOf(1), 1, 0, false)
		l.Leaving(1, 3<<20)
		l.Leaving(0, 9<<20)
		if n := l.Since(l.Find(keyOf(1))); n != 3<<20 {
			t.Errorf("%d bytes since, want %d", n, 3<<20)
		}
	})
}

func TestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewDeparted(8)
		begun := time.Now().Truncate(time.Second)
		l.Add(keyOf(1), Note{Reason: Declined, Tier: 1})
		time.Sleep(time.Minute)
		l.Evict(keyOf(1), 0, 0, true)
		if n := l.Find(keyOf(1)); n.Reason != Declined || n.since(begun) != time.Minute {
			t.Errorf("%+v, %v after it began", n, n.since(begun))
		}
	})
}

// TestNothing: a nil log is one that remembers nothing.
func TestNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *Departed
		l.Add(keyOf(1), Note{Reason: Deleted})
		l.Evict(keyOf(1), 0, 0, true)
		l.Taken(keyOf(1))
		l.Leaving(0, 1)
		if l.Find(keyOf(1)) != (Note{}) || l.used() != 0 {
			t.Error("a nil log knows something")
		}
	})
}

// TestMemory: an entry is as large as the documentation says, and notes allocate
// nothing.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if n := unsafe.Sizeof(entry{}); n != 24 || DefaultEntries*n != 6<<20 {
			t.Errorf("an entry has %d bytes, and there are %d; docs/guarantees.md says 24 and 6 MiB in all", n, DefaultEntries)
		}
		l, k := NewDeparted(1000), keyOf(1)
		if n := testing.AllocsPerRun(100, func() {
			k.Hash[5]++
			l.Evict(k, 0, 0, true)
			l.Find(k)
			l.Taken(k)
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

func BenchmarkFind(b *testing.B) {
	l := NewDeparted(DefaultEntries)
	for i := range 1 << 16 {
		l.Evict(keyOf(i), 0, 0, false)
	}
	for i := 0; b.Loop(); i++ {
		l.Find(keyOf(i & 0xffff))
	}
}
