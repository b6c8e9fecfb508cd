package policy

import "math/bits"

// ghosts remembers entries that are no longer resident, by 32 bits of their
// hash, in a few queues with the oldest first. A hash is in one queue at most.
// A ghost is 12 bytes and 4 of the hash table, without pointers. Room that was
// made once is used again, by any queue.
//
// Among n ghosts a hash that is none of them is taken for one with a chance of
// n/2³²: one miss in 400 among ten million. Hashes below 2³², as those of a
// replay are, are never mistaken.
//
// The table grows by linear hashing: one bucket is split for each ghost that
// is more than ever before, so no call pays for a growth as a whole.
type ghosts struct {
	records pages[ghost]
	runs    pages[run]
	made    uint32 // runs, ever
	spare   uint32 // list of the runs of no queue
	live    uint32
	looked  uint64        // places, in search of ghosts
	heads   pages[uint32] // record + 1
	buckets uint32        // in use
	half    uint32        // buckets below buckets-half are split: half <= buckets < 2 half
	queues  [4]ghostQueue
}

type ghost struct {
	hash      uint32
	chain     uint32 // in the bucket, record + 1
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
	if g.live > 0 {
		if at := g.find32(uint32(hash)); *at != 0 {
			return g.record(*at).queue(), true
		}
	}
	return 0, false
}

// put makes a ghost the newest of a queue, and takes it out of the queue that
// it was in.
func (g *ghosts) put(queue int, hash uint64, size uint32) {
	if g.live >= g.buckets {
		g.split()
	}
	at := g.find32(uint32(hash))
	if *at != 0 {
		g.end(at)
		at = g.find32(uint32(hash))
	}
	q := &g.queues[queue]
	*at = g.append(q)
	*g.record(*at) = ghost{hash: uint32(hash), sizeQueue: size<<2 | uint32(queue)}
	g.live++
	q.weight += int64(size)
}

// drop forgets a ghost, if there is one.
func (g *ghosts) drop(hash uint64) {
	if g.live == 0 {
		return
	}
	if at := g.find32(uint32(hash)); *at != 0 {
		g.end(at)
	}
}

// trim forgets the oldest of a queue until it weighs no more than limit.
func (g *ghosts) trim(queue int, limit int64) {
	q := &g.queues[queue]
	for q.weight > limit && q.front != 0 {
		g.end(g.link(q.oldest()))
	}
}

func (g *ghosts) weight(queue int) int64 { return g.queues[queue].weight }

// record is that of a link.
func (g *ghosts) record(r uint32) *ghost { return g.records.at(r - 1) }

// end ends the ghost that a link leads to, and leaves its place in the queue
// behind. Others may get another record, so that what leads to them changes.
func (g *ghosts) end(at *uint32) {
	r := *at
	rec := g.record(r)
	q := &g.queues[rec.queue()]
	g.live--
	q.weight -= int64(rec.size())
	*at = rec.chain
	*rec = ghost{}
	g.compact(q, runOf(r))
}

// link returns what leads to record r. The oldest are in front of their
// chains.
func (g *ghosts) link(r uint32) *uint32 {
	at := g.heads.at(g.bucket(g.record(r).hash))
	for *at != r {
		at = &g.record(*at).chain
	}
	return at
}

// find32 returns what leads to the ghost of a hash, or the end of its chain.
// There are buckets.
func (g *ghosts) find32(hash uint32) *uint32 {
	at := g.heads.at(g.bucket(hash))
	for *at != 0 {
		rec := g.record(*at)
		if rec.hash == hash {
			break
		}
		at = &rec.chain
	}
	return at
}

// bucket returns the bucket of a hash. Those that are split have twice as
// many buckets to go to as those that are not.
func (g *ghosts) bucket(hash uint32) uint32 {
	h := spread(uint64(hash))
	if b := h & (2*g.half - 1); b < g.buckets {
		return b
	}
	return h & (g.half - 1)
}

// spread mixes a hash, which may be a small number or a multiple of a large
// one, into all bits of the result.
func spread(hash uint64) uint32 {
	const golden = 0x9e3779b97f4a7c15 // 2⁶⁴ over the golden ratio
	hi, lo := bits.Mul64(hash, golden)
	return uint32(hi ^ lo)
}

// split adds a bucket and moves to it what belongs there.
func (g *ghosts) split() {
	g.heads.reach(g.buckets)
	if g.buckets == 0 {
		g.buckets, g.half = 1, 1
		return
	}
	if g.buckets == 2*g.half {
		g.half *= 2
	}
	from, to := g.heads.at(g.buckets-g.half), g.heads.at(g.buckets)
	fresh := g.buckets
	g.buckets++
	for *to = 0; *from != 0; {
		rec := g.record(*from)
		if g.bucket(rec.hash) != fresh {
			from = &rec.chain
			continue
		}
		*to, *from, rec.chain = *from, rec.chain, 0
		to = &rec.chain
	}
}
