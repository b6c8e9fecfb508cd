package stack

import (
	"slices"

	"github.com/kvstored/kvstored/tier"
)

// Stay has victims of DRAM that are not written below yet stay in DRAM when Run ends, for
// a process that goes on with it. Call it before Run's context ends.
func (d *dram) Stay() { d.staying.Store(true) }

// Adopt takes up what an earlier process has left in DRAM, which the tier has already:
// the index knows it from then on, and the writers have what the tiers below lack. Call
// it before Run, when each space that is to be kept local is.
func (r *recovery) Adopt(list []tier.Resumed) {
	recs := make([]tier.Record, 0, indexBatch)
	for part := range slices.Chunk(list, indexBatch) {
		recs = recs[:0]
		for i := range part {
			recs = append(recs, part[i].Record)
		}
		r.index.insert(tier.CPU, recs)
		for _, l := range r.levels.below {
			r.adoptBelow(l, part)
		}
	}
}

// adoptBelow tells the index what a tier that cannot be asked has, and its writer what
// the tier lacks.
func (r *recovery) adoptBelow(l *level, part []tier.Resumed) {
	var there []tier.Record
	for i := range part {
		e := &part[i]
		lacks := !e.Below.Has(l.place)
		if l.writer == r.nearest(e.Key.Space) {
			lacks = e.Dirty
		}
		switch {
		case lacks:
			adopt(&l.writer.queue, e)
		case l.Resident == nil: // others are scanned
			there = append(there, e.Record)
		}
	}
	r.index.insert(l.place, there)
}

// adopt has a writer take up a chunk of DRAM that its tier lacks.
func adopt(q *queue, e *tier.Resumed) {
	if q.when.mode == WriteSelective && e.Hits < q.when.minHits || !q.takes(e.Key.Space) {
		return
	}
	r := e.Record
	r.Sum = 0 // the block has it
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.backlog.add(r, q.mu.flushes.gen, q.when.clock())
	q.more()
}
