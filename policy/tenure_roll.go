package policy

// tenant is the record of a known chunk: 48 bytes, no pointers. With 4 each
// for two buckets, its ID and its being watched that is 64.
type tenant struct {
	hash       uint64
	last       int64  // when it was asked for
	parent     uint32 // of a resident: the tenant before it, or 0
	prev, next uint32 // in its cell or among the ghosts; next in the free list
	chain      uint32 // in the bucket
	kids       uint32 // residents whose parent it is
	id         ID     // of a resident
	watch      uint32 // 1 + its place among the watched, 0 = not watched
	class      uint16
	bin        uint8 // of its cell, while it is seated
	mark       uint8
}

// Marks of a tenant. One that is neither resident nor a ghost is not known: it
// is only the parent of residents, or about to be used for the first time.
const (
	resident uint8 = 1 << iota
	ghostly
	seated // in a cell
	aside  // refused by the owner
	twin   // its hash leads to another
	asked  // in the request being read
)

func (t *tenant) is(mark uint8) bool { return t.mark&mark != 0 }

func (t *tenant) known() bool { return t.is(resident | ghostly) }

// uses is how often a known one was asked for, up to maxCount.
func (t *tenant) uses() int { return int(t.class)%plain/(plain/maxCount) + 1 }

// roll is all tenants, by number and by hash. Number 0 is none. The table of
// hashes grows one bucket at a time, as that of the ghosts does.
type roll struct {
	tenants pages[tenant]
	made    uint32
	spare   uint32 // free list
	filed   uint32 // tenants that their hash leads to
	heads   pages[uint32]
	buckets uint32
	half    uint32 // half <= buckets < 2 half
	ghosts  row
	known   int       // residents and ghosts
	recent  [2]uint32 // found last: chunks are named with their parents, one after the other
}

// row is a list of tenants. The front goes first.
type row struct{ front, back uint32 }

func (r *roll) at(i uint32) *tenant { return r.tenants.at(i) }

func (r *roll) bucket(hash uint64) uint32 {
	h := spread(hash)
	if b := h & (2*r.half - 1); b < r.buckets {
		return b
	}
	return h & (r.half - 1)
}

// find returns the tenant of a hash, or 0.
func (r *roll) find(hash uint64) uint32 {
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

// enrol returns the tenant of a hash, which may be one that is not known yet.
func (r *roll) enrol(hash uint64) uint32 {
	if i := r.find(hash); i != 0 {
		return i
	}
	r.filed++
	for 2*r.filed > r.buckets { // most chains are of one
		r.split()
	}
	i := r.take()
	head := r.heads.at(r.bucket(hash))
	*r.at(i) = tenant{hash: hash, chain: *head}
	*head = i
	return i
}

// enrolTwin makes another tenant for a hash that has one.
func (r *roll) enrolTwin(hash uint64) uint32 {
	i := r.take()
	*r.at(i) = tenant{hash: hash, mark: twin}
	return i
}

func (r *roll) take() uint32 {
	i := r.spare
	if i != 0 {
		r.spare = r.at(i).next
		return i
	}
	r.made++
	r.tenants.reach(r.made)
	return r.made
}

// strike ends a tenant that is in no row.
func (r *roll) strike(i uint32) {
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
	*t = tenant{next: r.spare}
	r.spare = i
}

// split adds a bucket and moves to it what belongs there.
func (r *roll) split() {
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

func (r *roll) haunt(i uint32) {
	r.at(i).mark |= ghostly
	r.pushBack(&r.ghosts, i)
}

func (r *roll) exorcise(i uint32) {
	r.at(i).mark &^= ghostly
	r.unlink(&r.ghosts, i)
}

func (r *roll) pushBack(l *row, i uint32) {
	t := r.at(i)
	t.prev, t.next = l.back, 0
	if l.back != 0 {
		r.at(l.back).next = i
	} else {
		l.front = i
	}
	l.back = i
}

func (r *roll) pushFront(l *row, i uint32) {
	t := r.at(i)
	t.prev, t.next = 0, l.front
	if l.front != 0 {
		r.at(l.front).prev = i
	} else {
		l.back = i
	}
	l.front = i
}

func (r *roll) unlink(l *row, i uint32) {
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
