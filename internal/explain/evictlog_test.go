package explain

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/kvstored/kvstored/key"
)

// since is when the chunk left, to the second.
func (n Note) since(begun time.Time) time.Duration { return time.Unix(int64(n.At), 0).Sub(begun) }

func keyOf(n int) (k key.Key) {
	k.Hash[0], k.Hash[1], k.Space[3] = byte(n), byte(n>>8), byte(n>>16)
	return k
}

// TestModel: a log with room for all chunks answers as a map of their notes does.
func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 24))
			l, m := NewEvictLog(1<<14), make(map[key.Key]Note)
			for range 5000 {
				k, tier, why := keyOf(r.IntN(400)), uint8(r.IntN(3)), uint8(r.IntN(200))
				had := m[k]
				switch r.IntN(6) {
				case 0:
					kind := []Reason{Evicted, Declined, Deleted, Corrupt, Gap}[r.IntN(5)]
					l.Add(k, Note{Reason: kind, Tier: tier, Detail: why})
					m[k] = Note{Reason: kind, Tier: tier, Detail: why}
				case 1:
					keeps := r.IntN(2) == 0
					l.Evict(k, tier, why, keeps)
					if !keeps || had.Reason != Declined || had.Tier == tier {
						m[k] = Note{Reason: Evicted, Tier: tier, Detail: why}
					}
				case 2:
					l.Add(k, Note{Reason: Declined, Tier: tier, Detail: why})
					m[k] = Note{Reason: Declined, Tier: tier, Detail: why}
				case 3:
					l.DeclineNew(k, tier, why)
					if had.Reason == Nothing {
						m[k] = Note{Reason: Declined, Tier: tier, Detail: why}
					}
				case 4:
					if l.Taken(k); had.Reason == Declined {
						delete(m, k)
					}
				}
				k = keyOf(r.IntN(400))
				got, want := l.Find(k), m[k]
				if got.Reason != want.Reason || got.Tier != want.Tier || got.Detail != want.Detail {
					t.Fatalf("seed %d: %v is %+v, want %+v", seed, k, got, want)
				}
			}
		}
	})
}

// TestSince: what a tier evicts after a chunk is how much larger it had to be; that
// of other tiers does not count, and a log is not misled by wrapped numbers.
func TestSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewEvictLog(8)
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
		l := NewEvictLog(8)
		begun := time.Now().Truncate(time.Second)
		l.Add(keyOf(1), Note{Reason: Declined, Tier: 1})
		time.Sleep(time.Minute)
		l.Evict(keyOf(1), 0, 0, true)
		if n := l.Find(keyOf(1)); n.Reason != Declined || n.since(begun) != time.Minute {
			t.Errorf("%+v, %v after it began", n, n.since(begun))
		}
	})
}

// TestMemory: an entry is as large as the documentation says, and notes allocate
// nothing.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if n := unsafe.Sizeof(Note{}) + 12; n != 24 || DefaultEntries*n != 6<<20 {
			t.Errorf("an entry has %d bytes, and there are %d; docs/guarantees.md says 24 and 6 MiB in all", n, DefaultEntries)
		}
		l, k := NewEvictLog(1000), keyOf(1)
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
	l := NewEvictLog(DefaultEntries)
	for i := range 1 << 16 {
		l.Evict(keyOf(i), 0, 0, false)
	}
	for i := 0; b.Loop(); i++ {
		l.Find(keyOf(i & 0xffff))
	}
}
