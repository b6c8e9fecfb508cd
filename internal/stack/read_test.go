package stack_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// toilsome is DRAM that takes a microsecond for each chunk that is held or touched.
type toilsome struct {
	tier.Hot
	touched []key.Key
}

func (h *toilsome) Hold(o ledger.Owner, c ledger.Class, ks []key.Key, refs []tier.Ref) (int, error) {
	time.Sleep(time.Duration(len(ks)) * time.Microsecond)
	return h.Hot.Hold(o, c, ks, refs)
}

func (h *toilsome) Touch(ks []key.Key) {
	time.Sleep(time.Duration(len(ks)) * time.Microsecond)
	for i := range ks {
		h.touched = append(h.touched, ks[len(ks)-1-i])
	}
	h.Hot.Touch(ks)
}

// A read of many chunks lets others go first all the time, and counts as one use of each,
// tail first.
func TestReadTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const chunks, unused, bytes = 3000, 100, 4 * kib
		hot := new(toilsome)
		r := newRig(t, options{capacity: 64 * mib, lone: true, hot: func(h tier.Hot) tier.Hot { hot.Hot = h; return hot }})
		c := tiertest.Chain(1, chunks)
		r.put(c, 0, chunks, bytes)
		hot.touched = nil
		var last time.Time
		var longest time.Duration
		note := func() {
			longest = max(longest, time.Since(last))
			last = time.Now()
		}
		turn := fair.NewGate(1, fair.Machine{Yield: note}).NewUser().NewTurn()
		last = time.Now()
		if err := turn.Begin(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		first, all := r.Read(fair.With(t.Context(), turn), c, unused, chunks)
		note()
		turn.Leave()
		if first != bytes || all != (chunks-unused)*bytes {
			t.Errorf("the first chunk has %d bytes, all have %d", first, all)
		}
		if longest >= time.Millisecond {
			t.Errorf("others wait for %v", longest)
		}
		if len(hot.touched) != chunks-unused {
			t.Fatalf("%d uses, want one of each of %d", len(hot.touched), chunks-unused)
		}
		for i, k := range hot.touched {
			if k != c.Key(chunks-1-i) {
				t.Fatalf("use %d is not of chunk %d", i, chunks-1-i)
			}
		}
	})
}
