package disk

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// What an entry is reckoned with is what the database takes for it: the
// difference between a few and many of them, without anything else in there.
func TestCostOfEntries(t *testing.T) {
	for _, c := range []struct {
		name            string
		inline          int64
		size, few, many int
	}{
		{"one byte", 512, 1, 500, 3000},
		{"half a block", 4096, 2000, 100, 600},
		{"a block", 4096, 4096, 100, 600},
		{"most", metadata.MaxInlineBytes, metadata.MaxInlineBytes, 10, 60},
		{"extents", 0, 1, 300, 1200},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := testOptions(tiertest.Folder(t))
				o.CapacityBytes, o.InlineMax = 128*mib, c.inline
				d, _ := start(t, o, nil)
				m := newMemory(t)
				compacted := func(n int) int64 {
					for i := int(d.Stats().Entries); i < n; i++ {
						mustPut(t, d, m, i, c.size)
					}
					for range 6 { // a flush may end behind a compaction, which leaves it to the next
						time.Sleep(time.Second)
						if err := (&reclaim{t: d.instance}).compact(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					return d.budget.held.Load()
				}
				few := compacted(c.few)
				got := float64(compacted(c.many)-few) / float64(c.many-c.few)
				want := float64(metadata.HeldBytes(int64(c.size), c.inline > 0))
				if t.Logf("%.1f bytes an entry, reckoned with %.0f", got, want); got < 0.85*want || got > 1.1*want {
					t.Error("that is not what it costs")
				}
			})
		})
	}
}

// Garbage that a compaction has left is no reason for the next, which would find
// it there again; garbage that has come since is.
func TestGarbageThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBudget(&Options{CapacityBytes: 1 << 30}, new(segments))
		h.held.Store(1000)
		h.live.Store(500)
		if !h.garbage() {
			t.Fatal("half of it is no garbage")
		}
		if err := h.Compacted(func() (int64, error) { return 1000, nil }); err != nil {
			t.Fatal(err)
		}
		if h.garbage() {
			t.Error("what a compaction has left is worth another")
		}
		h.held.Store(1300)
		if !h.garbage() {
			t.Error("what was deleted since is not worth one")
		}
		if err := h.Compacted(func() (int64, error) { return 500, nil }); err != nil {
			t.Fatal(err)
		}
		h.held.Store(600)
		if !h.garbage() {
			t.Error("what an earlier compaction had left hides what is new")
		}
	})
}
