package writeback

import (
	"context"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// transit is what DRAM has evicted and no tier below has yet: blocks in the
// hands of the writers. Each counts as DRAM's until its write has ended, and
// comes back to DRAM if it is asked for (Writers.Readmit), so that a chunk is
// somewhere at every moment. A key has at most one demotion: it cannot be
// stored anew before that has ended, or was deleted.
//
// Its mutex is a leaf. Nothing is kept of a demotion that has ended.
type transit struct {
	mu struct {
		sync.Mutex
		chunks map[key.Key]demotion
		peak   int // of chunks
		last   uint64
	}
}

// demotion is one chunk in transit. The block is the write task's.
type demotion struct {
	life  uint64 // tells it from an earlier one of the same key
	with  *queue // of the writer that has the block
	rec   tier.Record
	block arena.Block
}

// begin notes a victim, and returns its life. Again says that the same block is
// in transit already: it was evicted, readmitted, and is evicted again.
func (d *transit) begin(r tier.Record, b arena.Block, with *queue) (life uint64, again bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if has, ok := d.mu.chunks[r.Key]; ok && has.block == b {
		return has.life, true
	}
	if d.mu.chunks == nil {
		d.mu.chunks = make(map[key.Key]demotion)
	}
	d.mu.last++
	d.mu.chunks[r.Key] = demotion{d.mu.last, with, r, b}
	return d.mu.last, false
}

// forward notes that another writer has a victim now.
func (d *transit) forward(k key.Key, life uint64, to *queue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if has := d.mu.chunks[k]; has.life == life {
		has.with = to
		d.mu.chunks[k] = has
	}
}

// end forgets a demotion, unless it was recalled before.
func (d *transit) end(k key.Key, life uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.chunks[k].life == life {
		base.Delete(&d.mu.chunks, k, &d.mu.peak)
	}
}

// lives reports whether a demotion was not recalled.
func (d *transit) lives(k key.Key, life uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.chunks[k].life == life
}

// has reports whether k is in transit.
func (d *transit) has(k key.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.mu.chunks[k]
	return ok
}

// isWith reports whether the writer of a queue has k.
func (d *transit) isWith(k key.Key, q *queue) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.chunks[k].with == q
}

// take returns a chunk in transit, with a reference of its block.
func (d *transit) take(k key.Key) (tier.Record, arena.Block, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	has, ok := d.mu.chunks[k]
	if ok {
		has.block.Retain()
	}
	return has.rec, has.block, ok
}

// Deletion is chunks that are about to be deleted.
type Deletion interface {
	Has(k key.Key) bool
	// Keys is all of them; whole says that they are a space, of which no list is made.
	Keys() (ks []key.Key, whole bool)
}

// InTransit is the chunks of a deletion that are on their way to the tier from DRAM alone.
func (w *Writer) InTransit(del Deletion) (rs []tier.Record) {
	return w.writers.transit.of(&w.queue, del.Has)
}

// of is the chunks asked for that the writer of a queue has in hand.
func (d *transit) of(q *queue, in func(key.Key) bool) (rs []tier.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, has := range d.mu.chunks {
		if has.with == q && in(k) {
			rs = append(rs, has.rec)
		}
	}
	return rs
}

// Recall forgets the chunks of a deletion that are on their way to the tier from DRAM
// alone: they are not written, and do not come back. It returns the keys.
func (w *Writer) Recall(del Deletion) (ks []key.Key) {
	list, whole := del.Keys()
	if whole { // as many are in transit as the budget of unwritten bytes admits
		for _, r := range w.InTransit(del) {
			list = append(list, r.Key)
		}
	}
	for part := range slices.Chunk(list, batch) {
		ks = w.writers.transit.recall(part, &w.queue, ks)
	}
	return ks
}

// AwaitWrites waits until no worker is at anything that is deleted. Tasks that no worker
// has taken yet will find that their chunk was deleted, or recalled, or cannot be promoted.
func (w *Writer) AwaitWrites(ctx context.Context, del Deletion) error {
	return w.queue.awaitWrites(ctx, del)
}

func (d *transit) recall(ks []key.Key, q *queue, out []key.Key) []key.Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range ks {
		if d.mu.chunks[k].with == q {
			base.Delete(&d.mu.chunks, k, &d.mu.peak)
			out = append(out, k)
		}
	}
	return out
}

// remove takes out a chunk whose bytes are wrong.
func (d *transit) remove(k key.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	base.Delete(&d.mu.chunks, k, &d.mu.peak)
}
