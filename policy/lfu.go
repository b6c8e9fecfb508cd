package policy

import "github.com/kvstored/kvstored/internal/base"

// lfu evicts the entry that was used least often since it was added; among
// equals, the one that reached that count first. A new entry counts as used
// once.
//
// Entries used equally often form a bucket, and the buckets form a list by
// count, so that a hit moves an entry to the next bucket or to a new one
// right behind its own: O(1). A bucket exists while it lists something.
// Refused entries are in no bucket, only their count and rank remain; one that
// came back through the heap stays there, where a hit costs O(log n).
type lfu struct {
	nodes
	tags    base.Pages[uint32] // of each entry: the bucket while listed, else the count
	buckets base.Pool[bucket]  // bucket 0 is before the first
	back    heap
	seq     int64
	inspect uint64
}

type bucket struct {
	list
	count      uint32
	prev, next uint32 // by count, in a ring through bucket 0
}

func newLFU(int64) Policy {
	p := new(lfu)
	p.buckets.Init()
	return p
}

func (p *lfu) Miss(uint64, int64) {}

func (p *lfu) Add(id ID, _ Meta) {
	if !p.nodes.enter(id) {
		return
	}
	p.tags.Reach(uint32(id))
	p.enqueue(id, 1, 0)
}

func (p *lfu) Touch(id ID) {
	n := p.nodes.resident(id)
	if n == nil {
		return
	}
	if n.place() != listed {
		count := p.more(p.count(id))
		p.leave(id)
		p.seq++
		*p.tags.At(uint32(id)) = count
		n.setSeq(p.seq)
		p.back.push(p, id)
		return
	}
	from := *p.tags.At(uint32(id))
	p.buckets.At(from).unlink(&p.nodes, id)
	p.enqueue(id, p.more(p.buckets.At(from).count), from)
	p.prune(from)
}

func (p *lfu) Remove(id ID) { p.leave(id) }

// Allow puts a refused entry back into a bucket if it goes before all that is
// listed, and else into the heap.
func (p *lfu) Allow(id ID) {
	n := p.nodes.resident(id)
	if n == nil || n.place() != refused {
		return
	}
	tag := p.tags.At(uint32(id))
	at := p.buckets.At(0).next
	if at != 0 && !p.rank(id).less(p.frontRank(at)) {
		p.back.push(p, id)
		return
	}
	if at == 0 || p.buckets.At(at).count != *tag {
		at = p.insert(*tag, 0)
	}
	*tag = at
	p.buckets.At(at).pushFront(&p.nodes, id)
}

func (p *lfu) Evict(ok func(ID) bool) (ID, bool) {
	for {
		id, found := p.first()
		if !found {
			return 0, false
		}
		n := p.nodes.At(uint32(id))
		count := p.count(id)
		if n.place() == returned {
			p.back.pop(p)
			n.setPlace(absent)
		} else {
			p.leave(id)
		}
		p.inspect++
		if ok(id) {
			return id, true
		}
		n.setPlace(refused)
		*p.tags.At(uint32(id)) = count
	}
}

func (p *lfu) Steps() uint64 { return p.inspect + p.back.steps }

// first returns the next victim: the lower of the lowest bucket's front and the
// heap's top.
func (p *lfu) first() (ID, bool) {
	top, found := p.back.top()
	lowest := p.buckets.At(0).next
	if lowest == 0 {
		return top, found
	}
	if found && p.rank(top).less(p.frontRank(lowest)) {
		return top, true
	}
	return ID(p.buckets.At(lowest).front - 1), true
}

// rank is that of an entry that is not listed.
func (p *lfu) rank(id ID) rank {
	return rank{uint64(*p.tags.At(uint32(id))), p.nodes.At(uint32(id)).seq()}
}

// frontRank is the rank of a bucket's front.
func (p *lfu) frontRank(at uint32) rank {
	b := p.buckets.At(at)
	return rank{uint64(b.count), p.nodes.At(b.front - 1).seq()}
}

func (p *lfu) count(id ID) uint32 {
	tag := *p.tags.At(uint32(id))
	if p.nodes.At(uint32(id)).place() == listed {
		return p.buckets.At(tag).count
	}
	return tag
}

// more counts one more use, up to 2³²-1.
func (p *lfu) more(count uint32) uint32 { return max(count, count+1) }

// enqueue lists id last in the bucket of count, which is at or right behind
// the bucket after.
func (p *lfu) enqueue(id ID, count, after uint32) {
	at := after
	if after == 0 || p.buckets.At(after).count != count {
		if at = p.buckets.At(after).next; at == 0 || p.buckets.At(at).count != count {
			at = p.insert(count, after)
		}
	}
	p.seq++
	p.nodes.At(uint32(id)).setSeq(p.seq)
	*p.tags.At(uint32(id)) = at
	p.buckets.At(at).pushBack(&p.nodes, id)
}

// insert makes a bucket right behind after.
func (p *lfu) insert(count, after uint32) uint32 {
	at := p.buckets.Take()
	next := p.buckets.At(after).next
	*p.buckets.At(at) = bucket{count: count, prev: after, next: next}
	p.buckets.At(after).next = at
	p.buckets.At(next).prev = at
	return at
}

// prune drops a bucket that lists nothing.
func (p *lfu) prune(at uint32) {
	b := p.buckets.At(at)
	if !b.empty() {
		return
	}
	p.buckets.At(b.prev).next = b.next
	p.buckets.At(b.next).prev = b.prev
	p.buckets.Give(at)
}

// leave takes a resident id out of its bucket or the heap. A refused one is in
// neither.
func (p *lfu) leave(id ID) {
	n := p.nodes.resident(id)
	if n == nil {
		return
	}
	switch n.place() {
	case listed:
		from := *p.tags.At(uint32(id))
		p.buckets.At(from).unlink(&p.nodes, id)
		p.prune(from)
	case returned:
		p.back.take(p, id)
	}
	n.setPlace(absent)
}
