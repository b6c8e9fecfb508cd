package policy

import "github.com/kvstored/kvstored/internal/base"

// chunk is the record of a known chunk: 48 bytes, no pointers. With 4 each
// for two buckets, its ID and its being watched that is 64.
type chunk struct {
	hash       uint64
	last       int64  // when it was asked for
	parent     uint32 // of a resident: the chunk before it, or 0
	prev, next uint32 // in its cell or among the ghosts
	chain      uint32 // of the index
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

// chunkTable is all chunks, by number and by hash. Number 0 is none.
type chunkTable struct {
	records base.Pool[chunk]
	index   base.Index
	ghosts  chunkList
	known   int       // residents and ghosts
	recent  [2]uint32 // found last: chunks are named with their parents, one after the other
}

// chunkList is a list of chunks. The front goes first.
type chunkList struct{ front, back uint32 }

func (r *chunkTable) At(i uint32) *chunk { return r.records.At(i) }

// find returns the chunk of a hash, or 0.
func (r *chunkTable) find(hash uint64) uint32 {
	for _, i := range r.recent {
		if i != 0 && r.At(i).hash == hash {
			return i
		}
	}
	i := r.index.Head(spread(hash))
	for i != 0 && r.At(i).hash != hash {
		i = r.At(i).chain
	}
	r.recent = [2]uint32{i, r.recent[0]}
	return i
}

// findOrAdd returns the chunk of a hash, which may be one that is not known yet.
func (r *chunkTable) findOrAdd(hash uint64) uint32 {
	if i := r.find(hash); i != 0 {
		return i
	}
	if r.records.Len() == 0 {
		r.index = base.NewIndex(2, // most chains are of one
			func(i uint32) uint64 { return spread(r.At(i).hash) },
			func(i uint32) *uint32 { return &r.At(i).chain },
		)
	}
	i := r.records.Take()
	t := r.At(i)
	t.hash = hash
	r.index.Insert(spread(hash), i, &t.chain)
	return i
}

// delete ends a chunk that is in no list.
func (r *chunkTable) delete(i uint32) {
	t := r.At(i)
	for at := range r.recent {
		if r.recent[at] == i {
			r.recent[at] = 0
		}
	}
	if !t.is(twin) {
		r.index.Remove(spread(t.hash), i, &t.chain)
	}
	r.records.Give(i)
}

func (r *chunkTable) addGhost(i uint32) {
	r.At(i).mark |= ghostly
	r.pushBack(&r.ghosts, i)
}

func (r *chunkTable) removeGhost(i uint32) {
	r.At(i).mark &^= ghostly
	r.unlink(&r.ghosts, i)
}

func (r *chunkTable) pushBack(l *chunkList, i uint32) {
	t := r.At(i)
	t.prev, t.next = l.back, 0
	if l.back != 0 {
		r.At(l.back).next = i
	} else {
		l.front = i
	}
	l.back = i
}

func (r *chunkTable) pushFront(l *chunkList, i uint32) {
	t := r.At(i)
	t.prev, t.next = 0, l.front
	if l.front != 0 {
		r.At(l.front).prev = i
	} else {
		l.back = i
	}
	l.front = i
}

func (r *chunkTable) unlink(l *chunkList, i uint32) {
	t := r.At(i)
	if t.prev != 0 {
		r.At(t.prev).next = t.next
	} else {
		l.front = t.next
	}
	if t.next != 0 {
		r.At(t.next).prev = t.prev
	} else {
		l.back = t.prev
	}
}
