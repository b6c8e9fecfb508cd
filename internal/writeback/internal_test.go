package writeback

import (
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/tier"
)

// The fifo does what a slice does.
func FuzzFifo(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0, 0, 4, 255, 0, 5})
	f.Add(slices.Repeat([]byte{1, 1, 1, 0}, 3*segment))
	f.Add(append(slices.Repeat([]byte{1}, segment), slices.Repeat([]byte{0}, segment)...))
	f.Fuzz(func(t *testing.T, ops []byte) {
		var r fifo[byte]
		var model []byte
		for _, op := range ops {
			switch {
			case op == 0 && len(model) > 0:
				if got := r.pop(); got != model[0] {
					t.Fatalf("popped %d; want %d", got, model[0])
				}
				model = model[1:]
			default:
				r.push(op)
				model = append(model, op)
			}
			if r.len() != len(model) {
				t.Fatalf("%d elements; want %d", r.len(), len(model))
			}
			if len(model) > 0 && *r.front() != model[0] {
				t.Fatalf("the front is %d; want %d", *r.front(), model[0])
			}
		}
	})
}

// The items remembered for a tier in trouble are bounded; the oldest goes first.
func TestMissedBound(t *testing.T) {
	const more = 10
	b := newBacklog(false)
	for i := range maxRetry + more {
		b.toRetry(item{rec: tier.Record{Depth: uint32(i)}})
	}
	if n, first := b.retry.len(), b.retry.front().rec.Depth; n != maxRetry || first != more {
		t.Errorf("%d chunks from %d on; want %d from %d on", n, first, maxRetry, more)
	}
}

// Maps of writes that were long give their room back when they are empty, and work
// as before.
func TestMapsOfWritesShrink(t *testing.T) {
	var d transit
	b := newBacklog(true)
	for round := range 2 {
		const n = 1<<10 + 1
		var items [n]item
		var lives [n]uint64
		for i := range items {
			items[i].rec.Key.Hash[0], items[i].rec.Key.Hash[1] = byte(i), byte(i>>8)
			b.move(&items[i], pending)
			lives[i], _ = d.begin(items[i].rec, arena.Block{}, nil)
		}
		if len(b.queued) != n || len(d.mu.chunks) != n {
			t.Fatalf("round %d: %d queued and %d in transit, want %d", round, len(b.queued), len(d.mu.chunks), n)
		}
		for i := range items {
			if !d.has(items[i].rec.Key) {
				t.Fatalf("round %d: chunk %d is not in transit", round, i)
			}
			b.move(&items[i], done)
			d.end(items[i].rec.Key, lives[i])
		}
		if b.peak >= n || len(b.queued) != 0 || d.mu.peak >= n || len(d.mu.chunks) != 0 {
			t.Errorf("round %d: the room of %d stays", round, n)
		}
	}
}
