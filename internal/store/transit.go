package store

import (
	"slices"
	"sync"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// transit is what DRAM has evicted and no tier below has yet: blocks in the
// hands of the writers. Each counts as DRAM's until its write has ended, and
// comes back to DRAM if it is asked for (dram.readmit), so that a chunk is
// somewhere at every moment. A key has at most one demotion: it cannot be
// stored anew before that has ended, or was deleted.
//
// Its mutex is a leaf. Nothing is kept of a demotion that has ended.
type transit struct {
	mu struct {
		sync.Mutex
		chunks map[key.Key]demotion
		most   int // chunks that the map has had room for
		last   uint64
	}
}

// keptRoom is for how many chunks the map keeps its room when it has become empty: Go's
// maps keep that of all that they ever had.
const keptRoom = 1 << 10

// demotion is one chunk in transit. The block is the write task's.
type demotion struct {
	life  uint64 // tells it from an earlier one of the same key
	with  *queue
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
	d.mu.most = max(d.mu.most, len(d.mu.chunks))
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
		delete(d.mu.chunks, k)
	}
	if len(d.mu.chunks) == 0 && d.mu.most > keptRoom {
		d.mu.chunks, d.mu.most = nil, 0
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

// isWith reports whether a writer has k.
func (d *transit) isWith(k key.Key, w *queue) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.chunks[k].with == w
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

// list is the chunks of a deletion that a writer has.
func (d *transit) list(del *deletion, w *queue) (rs []tier.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, has := range d.mu.chunks {
		if has.with == w && del.has(k) {
			rs = append(rs, has.rec)
		}
	}
	return rs
}

// recall forgets the chunks of a deletion that a writer has: they are not written,
// and do not come back. It returns the keys.
func (d *transit) recall(del *deletion, w *queue) (ks []key.Key) {
	if del.in != nil {
		for part := range slices.Chunk(del.keys, indexBatch) {
			ks = d.recallSome(part, w, ks)
		}
		return ks
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, has := range d.mu.chunks { // as many as the budget of unwritten bytes admits
		if has.with == w && del.has(k) {
			delete(d.mu.chunks, k)
			ks = append(ks, k)
		}
	}
	return ks
}

func (d *transit) recallSome(ks []key.Key, w *queue, out []key.Key) []key.Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range ks {
		if d.mu.chunks[k].with == w {
			delete(d.mu.chunks, k)
			out = append(out, k)
		}
	}
	return out
}

// remove takes out a chunk whose bytes are wrong.
func (d *transit) remove(k key.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.chunks, k)
}
