package policy

import "math/bits"

// ghosts remembers entries that are no longer resident, by their hash, in a
// few queues with the oldest first. A hash is in one queue at most. A ghost is
// 24 bytes and 4 of the hash table, without pointers.
//
// The table grows by linear hashing: one bucket is split for each ghost that
// is more than ever before, so no call pays for a growth as a whole.
type ghosts struct {
	records pages[ghost]
	made    uint32 // records ever made; record 0 is none
	free    uint32
	live    uint32
	heads   pages[uint32]
	buckets uint32 // in use
	half    uint32 // buckets below buckets-half are split: half <= buckets < 2 half
	queues  [4]ghostQueue
}

type ghost struct {
	hash       uint64
	prev, next uint32 // in the queue
	chain      uint32 // in the bucket; the free list
	sizeQueue  uint32 // size << 2 | queue
}

type ghostQueue struct {
	oldest, newest uint32
	weight         int64 // sum of sizes
}

// maxSize is the largest size that a record holds; larger entries weigh so
// much. Payloads are 64 MiB at most.
const maxSize = 1<<30 - 1

// weigh fits a size into a record.
func weigh(size int64) uint32 { return uint32(min(max(size, 1), maxSize)) }

func (g *ghost) size() uint32  { return g.sizeQueue >> 2 }
func (g *ghost) queue() uint32 { return g.sizeQueue & 3 }

// find returns the queue that a ghost is in.
func (g *ghosts) find(hash uint64) (queue int, found bool) {
	if r := g.lookup(hash); r != 0 {
		return int(g.records.at(r).queue()), true
	}
	return 0, false
}

// put makes a ghost the newest of a queue, wherever it was.
func (g *ghosts) put(queue int, hash uint64, size uint32) {
	r := g.lookup(hash)
	if r == 0 {
		r = g.insert(hash)
	} else {
		g.unlink(r)
	}
	q := &g.queues[queue]
	rec := g.records.at(r)
	rec.prev, rec.next, rec.sizeQueue = q.newest, 0, size<<2|uint32(queue)
	if q.newest != 0 {
		g.records.at(q.newest).next = r
	} else {
		q.oldest = r
	}
	q.newest = r
	q.weight += int64(size)
}

// drop forgets a ghost, if there is one.
func (g *ghosts) drop(hash uint64) {
	if r := g.lookup(hash); r != 0 {
		g.unlink(r)
		g.delete(r)
	}
}

// trim forgets the oldest of a queue until it weighs no more than limit.
func (g *ghosts) trim(queue int, limit int64) {
	for q := &g.queues[queue]; q.weight > limit && q.oldest != 0; {
		r := q.oldest
		g.unlink(r)
		g.delete(r)
	}
}

func (g *ghosts) weight(queue int) int64 { return g.queues[queue].weight }

func (g *ghosts) unlink(r uint32) {
	rec := g.records.at(r)
	q := &g.queues[rec.queue()]
	if rec.prev != 0 {
		g.records.at(rec.prev).next = rec.next
	} else {
		q.oldest = rec.next
	}
	if rec.next != 0 {
		g.records.at(rec.next).prev = rec.prev
	} else {
		q.newest = rec.prev
	}
	q.weight -= int64(rec.size())
}

// bucket returns the bucket of a hash. Those that are split have twice as
// many buckets to go to as those that are not.
func (g *ghosts) bucket(hash uint64) uint32 {
	h := spread(hash)
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

func (g *ghosts) lookup(hash uint64) uint32 {
	if g.live == 0 {
		return 0
	}
	r := *g.heads.at(g.bucket(hash))
	for r != 0 && g.records.at(r).hash != hash {
		r = g.records.at(r).chain
	}
	return r
}

// insert makes a record in no queue.
func (g *ghosts) insert(hash uint64) uint32 {
	g.live++
	if g.live > g.buckets {
		g.split()
	}
	r := g.free
	if r != 0 {
		g.free = g.records.at(r).chain
	} else {
		g.made++
		r = g.made
		g.records.reach(r)
	}
	head := g.heads.at(g.bucket(hash))
	*g.records.at(r) = ghost{hash: hash, chain: *head}
	*head = r
	return r
}

// delete frees a record that is in no queue.
func (g *ghosts) delete(r uint32) {
	g.live--
	link := g.heads.at(g.bucket(g.records.at(r).hash))
	for *link != r {
		link = &g.records.at(*link).chain
	}
	*link = g.records.at(r).chain
	*g.records.at(r) = ghost{chain: g.free}
	g.free = r
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
		rec := g.records.at(rest)
		head := g.heads.at(g.bucket(rec.hash))
		rest, rec.chain, *head = rec.chain, *head, rest
	}
}
