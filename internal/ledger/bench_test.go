package ledger_test

import (
	"testing"

	"github.com/kvstored/kvstored/internal/ledger"
)

func published(b testing.TB, chains, n int) *ledger.Ledger {
	l := newLedger(b, "lru", ledger.Limits{Lease: 1 << 40, Total: 1 << 40})
	for c := range chains {
		ks := chain(uint32(c), n)
		l.Publish(fill(b, l, ks, 0), false)
	}
	return l
}

func BenchmarkHoldUnhold1000(b *testing.B) {
	for _, touch := range []string{"hold", "hold+touch"} {
		b.Run(touch, func(b *testing.B) {
			l := published(b, 100, 1000)
			ks := chain(50, 1000)
			out, held := make([]ledger.Entry, len(ks)), make([]ledger.ID, len(ks))
			o := l.NewOwner()
			b.ReportAllocs()
			for b.Loop() {
				n, _ := l.Hold(o, ledger.Lease, ks, out)
				if touch != "hold" {
					l.Touch(ks[:n])
				}
				for i := range n {
					held[i] = out[i].ID
				}
				l.Unhold(o, ledger.Lease, held[:n])
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/chunk")
		})
	}
}

func BenchmarkLookup1000(b *testing.B) {
	l := published(b, 100, 1000)
	ks, have := chain(50, 1000), make([]bool, 1000)
	for b.Loop() {
		l.Lookup(ks, have)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/chunk")
}

func BenchmarkFillEvict1000(b *testing.B) {
	l := published(b, 100, 1000)
	got := make([]ledger.ID, 0, 1000)
	prompt := uint32(1000)
	b.ReportAllocs()
	for b.Loop() {
		ks := chain(prompt, 1000)
		prompt++
		got = got[:0]
		for i := range ks {
			id, _, _ := l.Begin(0, ledger.Load, ks[i], parent(ks, i), page)
			got = append(got, id)
		}
		l.Publish(got, false)
		for range 1000 {
			e, _ := l.Evict()
			l.Free(e.ID)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/chunk")
}

func TestHoldDoesNotAllocate(t *testing.T) {
	l := published(t, 2, 1000)
	ks := chain(1, 1000)
	out := make([]ledger.Entry, len(ks))
	held := make([]ledger.ID, len(ks))
	got := testing.AllocsPerRun(20, func() {
		n, _ := holdTouch(l, 0, ledger.Lease, ks, out)
		for i := range n {
			held[i] = out[i].ID
		}
		l.Unhold(0, ledger.Lease, held[:n])
	})
	if got > 0 {
		t.Errorf("%v allocations to hold 1000 chunks", got)
	}
}
