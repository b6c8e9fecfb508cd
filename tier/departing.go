package tier

import (
	"context"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// departing is what DRAM has evicted and no tier below has yet: blocks in the
// hands of the writers. Each counts as DRAM's until its write has ended, and
// comes back to DRAM if it is asked for (Stack.readmit), so that a chunk is
// somewhere at every moment. A key has at most one departure: it cannot be
// stored anew before that has ended, or was deleted.
//
// Its mutex is a leaf. Nothing is kept of a departure that has ended.
type departing struct {
	mu struct {
		sync.Mutex
		chunks map[key.Key]departure
		last   uint64
	}
}

// departure is one chunk on its way down. The block is the write task's.
type departure struct {
	life  uint64 // tells it from an earlier one of the same key
	with  *writer
	rec   Record
	block arena.Block
}

// begin notes a victim, and returns its life. Again says that the same block is
// on its way down already: it was evicted, came back, and is evicted again.
func (d *departing) begin(r Record, b arena.Block, with *writer) (life uint64, again bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if has, ok := d.mu.chunks[r.Key]; ok && has.block == b {
		return has.life, true
	}
	if d.mu.chunks == nil {
		d.mu.chunks = make(map[key.Key]departure)
	}
	d.mu.last++
	d.mu.chunks[r.Key] = departure{d.mu.last, with, r, b}
	return d.mu.last, false
}

// pass notes that another writer has a victim now.
func (d *departing) pass(k key.Key, life uint64, to *writer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if has := d.mu.chunks[k]; has.life == life {
		has.with = to
		d.mu.chunks[k] = has
	}
}

// end forgets a departure, unless it was recalled before.
func (d *departing) end(k key.Key, life uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.chunks[k].life == life {
		delete(d.mu.chunks, k)
	}
}

// lives reports whether a departure was not recalled.
func (d *departing) lives(k key.Key, life uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.chunks[k].life == life
}

// has reports whether k is on its way down.
func (d *departing) has(k key.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.mu.chunks[k]
	return ok
}

// isWith reports whether a writer has k.
func (d *departing) isWith(k key.Key, w *writer) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.chunks[k].with == w
}

// take returns what is on its way down, with a reference of its block.
func (d *departing) take(k key.Key) (Record, arena.Block, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	has, ok := d.mu.chunks[k]
	if ok {
		has.block.Retain()
	}
	return has.rec, has.block, ok
}

// list is what a writer has of what is deleted.
func (d *departing) list(del *deletion, w *writer) (rs []Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, has := range d.mu.chunks {
		if has.with == w && del.has(k) {
			rs = append(rs, has.rec)
		}
	}
	return rs
}

// recall forgets what a writer has of what is deleted: it is not written, and
// does not come back. It returns the keys.
func (d *departing) recall(del *deletion, w *writer) (ks []key.Key) {
	if del.in != nil {
		for part := range slices.Chunk(del.keys, settleBatch) {
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

func (d *departing) recallSome(ks []key.Key, w *writer, out []key.Key) []key.Key {
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

// drop forgets a chunk whose bytes are wrong.
func (d *departing) drop(k key.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.chunks, k)
}

// inHot reports whether k is in DRAM, or on its way down from there. A chunk
// between the two is not told; see Hot.HandedOver.
func (s *Stack) inHot(k key.Key) bool { return s.hot.Has(k) || s.departing.has(k) }

// readmit makes a chunk that is on its way down resident in DRAM again, in the
// block it has, and reports whether it is. It is written all the same.
func (s *Stack) readmit(k key.Key) (back bool) {
	if !s.departing.has(k) {
		if !s.indexed(CPU, k) {
			return false
		}
		s.hot.HandedOver() // perhaps just between the ledger and its writer
	}
	var r Record
	s.coming.readmit(k, func() { r, back = s.takeIn(k) })
	if back {
		s.settleRecords(CPU, []Record{r})
		s.filled()
	}
	return back
}

// takeIn publishes a departure in DRAM. A deletion that has ended by now has
// recalled it, and one that begins later finds it in DRAM.
func (s *Stack) takeIn(k key.Key) (r Record, back bool) {
	r, b, ok := s.departing.take(k)
	if !ok {
		return r, false
	}
	defer b.Release()
	ref, st, err := s.hot.Reserve(context.Background(), Fill{Record: r, Owner: ledger.Daemon, Class: ledger.IO, Block: b})
	if err == nil && st == ledger.Absent {
		s.hot.Publish([]Ref{ref}, true, false)
	}
	return r, err == nil && st != ledger.Filling
}
