package policy

import (
	"math/bits"

	"github.com/kvstored/kvstored/internal/base"
)

// ghosts remembers entries that are no longer resident, by 32 bits of their
// hash, in a few queues with the oldest first. A hash is in one queue at most.
// A ghost is 12 bytes and 4 of the hash table, without pointers. Room that was
// made once is used again, by any queue.
//
// Among n ghosts a hash that is none of them is taken for one with a chance of
// n/2³²: one miss in 400 among ten million. Hashes below 2³², as those of a
// replay are, are never mistaken.
type ghosts struct {
	records base.Pages[ghost] // of run after run
	runs    base.Pool[run]
	looked  uint64 // places, in search of ghosts
	index   base.Index
	queues  [4]ghostQueue
}

type ghost struct {
	hash      uint32
	chain     uint32 // of the index
	sizeQueue uint32 // size << 2 | queue; 0 in a record whose ghost was dropped
}

// maxSize is the largest size that a record holds; larger entries weigh so
// much. Payloads are 64 MiB at most.
const maxSize = 1<<30 - 1

// weigh fits a size into a record.
func weigh(size int64) uint32 { return uint32(min(max(size, 1), maxSize)) }

func (g *ghost) size() uint32 { return g.sizeQueue >> 2 }
func (g *ghost) queue() int   { return int(g.sizeQueue & 3) }
func (g *ghost) dead() bool   { return g.sizeQueue == 0 }

// find returns the queue that a ghost is in.
func (g *ghosts) find(hash uint64) (queue int, found bool) {
	if r := g.find32(uint32(hash)); r != 0 {
		return g.record(r).queue(), true
	}
	return 0, false
}

// put makes a ghost the newest of a queue, and takes it out of the queue that
// it was in.
func (g *ghosts) put(queue int, hash uint64, size uint32) {
	if g.runs.Len() == 0 {
		g.index = base.NewIndex(1,
			func(r uint32) uint64 { return spread(uint64(g.record(r).hash)) },
			func(r uint32) *uint32 { return &g.record(r).chain },
		)
	}
	g.drop(hash)
	q := &g.queues[queue]
	r := g.append(q)
	rec := g.record(r)
	*rec = ghost{hash: uint32(hash), sizeQueue: size<<2 | uint32(queue)}
	g.index.Insert(spread(uint64(rec.hash)), r, &rec.chain)
	q.weight += int64(size)
}

// drop forgets a ghost, if there is one.
func (g *ghosts) drop(hash uint64) {
	if r := g.find32(uint32(hash)); r != 0 {
		g.end(r)
	}
}

// trim forgets the oldest of a queue until it weighs no more than limit.
func (g *ghosts) trim(queue int, limit int64) {
	q := &g.queues[queue]
	for q.weight > limit && q.front != 0 {
		g.end(q.oldest())
	}
}

func (g *ghosts) weight(queue int) int64 { return g.queues[queue].weight }

func (g *ghosts) record(r uint32) *ghost { return g.records.At(r) }

// end ends a ghost, and leaves its place in the queue behind. Others may get another
// record.
func (g *ghosts) end(r uint32) {
	rec := g.record(r)
	q := &g.queues[rec.queue()]
	q.weight -= int64(rec.size())
	g.index.Remove(spread(uint64(rec.hash)), r, &rec.chain)
	*rec = ghost{}
	g.compact(q, r>>runBits)
}

// find32 returns the ghost of a hash, or 0.
func (g *ghosts) find32(hash uint32) uint32 {
	r := g.index.Head(spread(uint64(hash)))
	for r != 0 && g.record(r).hash != hash {
		r = g.record(r).chain
	}
	return r
}

// spread mixes a hash, which may be a small number or a multiple of a large
// one, into all bits of the result.
func spread(hash uint64) uint64 {
	const golden = 0x9e3779b97f4a7c15 // 2⁶⁴ over the golden ratio
	hi, lo := bits.Mul64(hash, golden)
	return hi ^ lo
}
