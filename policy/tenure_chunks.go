package policy

// chunk is the record of a known chunk: 48 bytes, no pointers. With 4 each
// for two buckets, its ID and its being watched that is 64.
type chunk struct {
	hash       uint64
	last       int64  // when it was asked for
	parent     uint32 // of a resident: the chunk before it, or 0
	prev, next uint32 // in its cell or among the ghosts; next in the free list
	chain      uint32 // in the bucket
	kids       uint32 // residents whose parent it is
	id         ID     // of a resident
	watch      uint32 // 1 + its place among the watched, 0 = not watched
	class      uint16
	spot       uint8 // the bin of its cell, while it is in one, and its step of cost
	mark       uint8
}

// Marks of a chunk. One that is neither resident nor a ghost is not known: it
// is only the parent of residents, or about to be used for the first time.
const (
	resident uint8 = 1 << iota
	ghostly
	inCell     // in a cell
	passedOver // refused by the owner
	twin       // its hash leads to another
	asked      // in the request being read
)

// spotBits is how many bits of a chunk's spot are its bin.
const spotBits = 5

const _ = uint(1<<spotBits - bins) // every bin fits

func (t *chunk) bin() int        { return int(t.spot) & (1<<spotBits - 1) }
func (t *chunk) setBin(b int)    { t.spot = t.spot&^(1<<spotBits-1) | uint8(b) }
func (t *chunk) step() int       { return int(t.spot) >> spotBits }
func (t *chunk) setStep(s uint8) { t.spot = t.spot&(1<<spotBits-1) | s<<spotBits }

func (t *chunk) is(mark uint8) bool { return t.mark&mark != 0 }

func (t *chunk) known() bool { return t.is(resident | ghostly) }

// uses is how often a known one was asked for, up to maxCount.
func (t *chunk) uses() int { return int(t.class)%plain/(plain/maxCount) + 1 }

// chunkTable is all chunks, by number and by hash. Number 0 is none. The table of
// hashes grows one bucket at a time, as that of the ghosts does.
type chunkTable struct {
	records pages[chunk]
	made    uint32
	spare   uint32 // free list
	filed   uint32 // chunks that their hash leads to
	heads   pages[uint32]
	buckets uint32
	half    uint32 // half <= buckets < 2 half
	ghosts  chunkList
	known   int       // residents and ghosts
	recent  [2]uint32 // found last: chunks are named with their parents, one after the other
}

// chunkList is a list of chunks. The front goes first.
type chunkList struct{ front, back uint32 }

func (r *chunkTable) at(i uint32) *chunk { return r.records.at(i) }

func (r *chunkTable) bucket(hash uint64) uint32 {
	h := spread(hash)
	if b := h & (2*r.half - 1); b < r.buckets {
		return b
	}
	return h & (r.half - 1)
}

// find returns the chunk of a hash, or 0.
func (r *chunkTable) find(hash uint64) uint32 {
	if r.filed == 0 {
		return 0
	}
	for _, i := range r.recent {
		if i != 0 && r.at(i).hash == hash {
			return i
		}
	}
	i := *r.heads.at(r.bucket(hash))
	for i != 0 && r.at(i).hash != hash {
		i = r.at(i).chain
	}
	r.recent = [2]uint32{i, r.recent[0]}
	return i
}

// findOrAdd returns the chunk of a hash, which may be one that is not known yet.
func (r *chunkTable) findOrAdd(hash uint64) uint32 {
	if i := r.find(hash); i != 0 {
		return i
	}
	r.filed++
	for 2*r.filed > r.buckets { // most chains are of one
		r.split()
	}
	i := r.take()
	head := r.heads.at(r.bucket(hash))
	*r.at(i) = chunk{hash: hash, chain: *head}
	*head = i
	return i
}

// addTwin makes another chunk for a hash that has one.
func (r *chunkTable) addTwin(hash uint64) uint32 {
	i := r.take()
	*r.at(i) = chunk{hash: hash, mark: twin}
	return i
}

func (r *chunkTable) take() uint32 {
	i := r.spare
	if i != 0 {
		r.spare = r.at(i).next
		return i
	}
	r.made++
	r.records.reach(r.made)
	return r.made
}

// delete ends a chunk that is in no list.
func (r *chunkTable) delete(i uint32) {
	t := r.at(i)
	for at := range r.recent {
		if r.recent[at] == i {
			r.recent[at] = 0
		}
	}
	if !t.is(twin) {
		r.filed--
		link := r.heads.at(r.bucket(t.hash))
		for *link != i {
			link = &r.at(*link).chain
		}
		*link = t.chain
	}
	*t = chunk{next: r.spare}
	r.spare = i
}

// split adds a bucket and moves to it what belongs there.
func (r *chunkTable) split() {
	r.heads.reach(r.buckets)
	if r.buckets == 0 {
		r.buckets, r.half = 1, 1
		return
	}
	if r.buckets == 2*r.half {
		r.half *= 2
	}
	from := r.heads.at(r.buckets - r.half)
	r.buckets++
	rest := *from
	for *from = 0; rest != 0; {
		t := r.at(rest)
		head := r.heads.at(r.bucket(t.hash))
		rest, t.chain, *head = t.chain, *head, rest
	}
}

func (r *chunkTable) addGhost(i uint32) {
	r.at(i).mark |= ghostly
	r.pushBack(&r.ghosts, i)
}

func (r *chunkTable) removeGhost(i uint32) {
	r.at(i).mark &^= ghostly
	r.unlink(&r.ghosts, i)
}

func (r *chunkTable) pushBack(l *chunkList, i uint32) {
	t := r.at(i)
	t.prev, t.next = l.back, 0
	if l.back != 0 {
		r.at(l.back).next = i
	} else {
		l.front = i
	}
	l.back = i
}

func (r *chunkTable) pushFront(l *chunkList, i uint32) {
	t := r.at(i)
	t.prev, t.next = 0, l.front
	if l.front != 0 {
		r.at(l.front).prev = i
	} else {
		l.back = i
	}
	l.front = i
}

func (r *chunkTable) unlink(l *chunkList, i uint32) {
	t := r.at(i)
	if t.prev != 0 {
		r.at(t.prev).next = t.next
	} else {
		l.front = t.next
	}
	if t.next != 0 {
		r.at(t.next).prev = t.prev
	} else {
		l.back = t.prev
	}
}
