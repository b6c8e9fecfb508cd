package policy

import "math/bits"

// ghosts remembers entries that are no longer resident, by 32 bits of their
// hash, in a few queues with the oldest first. A hash is in one queue at most.
// A ghost is 12 bytes and 2 of the hash table, without pointers.
//
// Among n ghosts a hash that is none of them is taken for one with a chance of
// n/2³²: one miss in 400 among ten million. Hashes below 2³², as those of a
// replay are, are never mistaken.
//
// The table grows by linear hashing: one bucket is split for every second
// ghost that is more than ever before, so no call pays for a growth as a
// whole.
type ghosts struct {
	records pages[ghost]
	runs    uint32   // ever made
	spare   []uint32 // runs of no queue
	live    uint32
	heads   pages[uint32] // record + 1
	buckets uint32        // in use
	half    uint32        // buckets below buckets-half are split: half <= buckets < 2 half
	queues  [4]ghostQueue
}

type ghost struct {
	hash      uint32
	chain     uint32 // in the bucket, record + 1
	sizeQueue uint32 // size << 2 | queue; 0 for what is no ghost any more
}

// perBucket is how many ghosts there are for each bucket. Two cost half a look
// more than one does, and half the memory.
const perBucket = 2

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
	if r := g.lookup(uint32(hash)); r != 0 {
		return g.record(r).queue(), true
	}
	return 0, false
}

// put makes a ghost the newest of a queue, wherever it was.
func (g *ghosts) put(queue int, hash uint64, size uint32) {
	g.drop(hash)
	g.live++
	if g.live > perBucket*g.buckets {
		g.split()
	}
	q := &g.queues[queue]
	r := g.append(q)
	head := g.heads.at(g.bucket(uint32(hash)))
	*g.record(r) = ghost{hash: uint32(hash), chain: *head, sizeQueue: size<<2 | uint32(queue)}
	*head = r
	q.weight += int64(size)
	g.squeeze(q)
}

// drop forgets a ghost, if there is one.
func (g *ghosts) drop(hash uint64) {
	if r := g.lookup(uint32(hash)); r != 0 {
		g.bury(&g.queues[g.record(r).queue()], r)
	}
}

// trim forgets the oldest of a queue until it weighs no more than limit.
func (g *ghosts) trim(queue int, limit int64) {
	q := &g.queues[queue]
	for q.weight > limit && q.from < q.to {
		g.bury(q, q.record(q.from))
	}
}

func (g *ghosts) weight(queue int) int64 { return g.queues[queue].weight }

// record is that of a link.
func (g *ghosts) record(r uint32) *ghost { return g.records.at(r - 1) }

// bury ends a ghost of q, and leaves its place in the queue behind.
func (g *ghosts) bury(q *ghostQueue, r uint32) {
	g.live--
	rec := g.record(r)
	q.weight -= int64(rec.size())
	*g.link(rec.hash, r) = rec.chain
	*rec = ghost{}
	q.dead++
	g.settle(q)
}

// link returns what leads to record r in the chain of its hash.
func (g *ghosts) link(hash, r uint32) *uint32 {
	at := g.heads.at(g.bucket(hash))
	for *at != r {
		at = &g.record(*at).chain
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

// lookup returns a link to the ghost of a hash, or 0.
func (g *ghosts) lookup(hash uint32) uint32 {
	if g.live == 0 {
		return 0
	}
	r := *g.heads.at(g.bucket(hash))
	for r != 0 && g.record(r).hash != hash {
		r = g.record(r).chain
	}
	return r
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
	from := g.heads.at(g.buckets - g.half)
	to := g.heads.at(g.buckets)
	g.buckets++
	rest := *from
	*from, *to = 0, 0
	for rest != 0 {
		rec := g.record(rest)
		head := g.heads.at(g.bucket(rec.hash))
		rest, rec.chain, *head = rec.chain, *head, rest
	}
}
