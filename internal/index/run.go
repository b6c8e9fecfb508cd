package index

import (
	"unsafe"

	"github.com/kvstored/kvstored/internal/base"
)

// maxRun bounds what one step copies, relabels or re-indexes: at most some
// 50 microseconds. A longer chain is several runs, each the only child of the
// one before, which costs a match nothing worth measuring.
const maxRun = 1024

// run is a stretch of one chain without a branch. Its children follow its
// last chunk. A run of length 0 is virtual: the root or the limbo of a space,
// or not in use.
type run struct {
	start  uint32 // slot of the first chunk
	parent uint32 // run before this one; virtual for the first of a chain
	child  uint32 // first child; siblings are linked both ways
	next   uint32
	prev   uint32
	space  uint32
	len    uint16
	head   uint16 // slots owned before start
	tail   uint16 // slots owned behind the last chunk
}

const runBytes = int64(unsafe.Sizeof(run{}))

// runs keeps runs by number; 0 is none.
type runs struct{ base.Pool[run] }

func (rs *runs) alloc(space uint32) uint32 {
	id := rs.Take()
	rs.At(id).space = space
	return id
}

// last is the slot of the run's last chunk.
func (r *run) last() uint32 { return r.start + uint32(r.len) - 1 }

// link makes id a child of parent.
func (rs *runs) link(parent, id uint32) {
	p, r := rs.At(parent), rs.At(id)
	r.parent, r.prev, r.next = parent, 0, p.child
	if p.child != 0 {
		rs.At(p.child).prev = id
	}
	p.child = id
}

// unlink takes id from among its siblings.
func (rs *runs) unlink(id uint32) {
	r := rs.At(id)
	if r.next != 0 {
		rs.At(r.next).prev = r.prev
	}
	if r.prev != 0 {
		rs.At(r.prev).next = r.next
	} else {
		rs.At(r.parent).child = r.next
	}
	r.next, r.prev, r.parent = 0, 0, 0
}

// replace puts id where old is among its siblings.
func (rs *runs) replace(old, id uint32) {
	parent := rs.At(old).parent
	rs.unlink(old)
	rs.link(parent, id)
}

// onlyChild returns id's child if there is exactly one, else 0.
func (rs *runs) onlyChild(id uint32) uint32 {
	c := rs.At(id).child
	if c == 0 || rs.At(c).next != 0 {
		return 0
	}
	return c
}

// split cuts a run before its n-th chunk, 0 < n < len, and returns the upper
// part. The lower one keeps the number, so the children, of which there may
// be very many, are not touched; no slot moves.
func (t *Tree) split(id uint32, n int) uint32 {
	upper := t.runs.alloc(t.runs.At(id).space)
	r, u := t.runs.At(id), t.runs.At(upper)
	u.start, u.len, u.head = r.start, uint16(n), r.head
	r.start, r.len, r.head = r.start+uint32(n), r.len-uint16(n), 0
	t.slots.own(u.start-uint32(u.head), int(u.head)+n, upper)
	t.runs.replace(id, upper)
	t.runs.link(upper, id)
	return upper
}

// merge joins run id with its only child if together they are not too long.
// The child's number stays, for the same reason as in split. The smaller of
// the two moves.
func (t *Tree) merge(id uint32) {
	child := t.runs.onlyChild(id)
	if child == 0 || t.runs.At(id).len == 0 {
		return
	}
	r, c := t.runs.At(id), t.runs.At(child)
	if int(r.len)+int(c.len) > t.maxRun {
		return
	}
	t.runs.unlink(child)
	t.runs.replace(id, child)
	switch {
	case r.tail == 0 && c.head == 0 && r.last()+1 == c.start && c.start&pageMask != 0: // what split left
		t.slots.own(r.start-uint32(r.head), int(r.head)+int(r.len), child)
		c.start, c.head = r.start, r.head
	case r.len <= c.len:
		t.makeRoom(child, int(r.len), 0)
		t.moveSlots(c.space, r.start, c.start-uint32(r.len), int(r.len))
		t.freeSlots(r)
		c.start, c.head = c.start-uint32(r.len), c.head-r.len
	default:
		t.makeRoom(id, 0, int(c.len))
		t.moveSlots(c.space, c.start, r.last()+1, int(c.len))
		t.freeSlots(c)
		c.start, c.head, c.tail = r.start, r.head, r.tail-c.len
		t.slots.own(r.start-uint32(r.head), int(r.head)+int(r.len)+int(r.tail), child)
	}
	c.len += r.len
	t.runs.Give(id)
}

// makeRoom lets a run own at least front free slots before it and back
// behind it. It takes free neighbours where it can, else moves the run to
// where there is an eighth more, so that growth by single chunks at either end
// moves each chunk a constant number of times.
func (t *Tree) makeRoom(id uint32, front, back int) {
	r := t.runs.At(id)
	if n := front - int(r.head); n > 0 && t.slots.takeBefore(r.start-uint32(r.head), n, id) {
		r.head += uint16(n)
	}
	if n := back - int(r.tail); n > 0 && t.slots.takeAfter(r.last()+1+uint32(r.tail), n, id) {
		r.tail += uint16(n)
	}
	if int(r.head) >= front && int(r.tail) >= back {
		return
	}
	slack := min(int(r.len)/8, t.maxRun-int(r.len)-front-back)
	if front > 0 {
		front += slack
	} else {
		back += slack
	}
	start := t.slots.alloc(front+int(r.len)+back, id) + uint32(front)
	t.moveSlots(r.space, r.start, start, int(r.len))
	t.freeSlots(r)
	r.start, r.head, r.tail = start, uint16(front), uint16(back)
}

// moveSlots copies n chunks of a space and points the table at the copies.
func (t *Tree) moveSlots(space, from, to uint32, n int) {
	hashes := t.slots.hashes(to, n)
	copy(hashes, t.slots.hashes(from, n))
	copy(t.slots.locs(to, n), t.slots.locs(from, n))
	t.slots.moveMarks(from, to, n)
	for i, h := range hashes {
		t.table.Move(t.mix(space, h), from+uint32(i), to+uint32(i))
	}
}

// freeSlots gives back everything a run owns.
func (t *Tree) freeSlots(r *run) {
	t.slots.release(r.start-uint32(r.head), int(r.head)+int(r.len)+int(r.tail))
}

// Many chains growing side by side leave holes too small for the runs they grow
// to. When free slots exceed a twelfth of the used ones, pages are emptied one
// after the other into free slots elsewhere, a few runs with each change of
// the tree, so that memory stays within a constant factor of the chunks stored.
const (
	repackStep  = 128           // slots moved with one change, and at most a run more
	repackFloor = 2 * pageSlots // free room that is nobody's worry
)

// repack moves some runs out of the page that is being emptied.
func (t *Tree) repack() {
	for moved := 0; moved < repackStep; {
		slot := t.slots.nextLeaving()
		if slot == 0 {
			return
		}
		id := t.slots.owner(slot)
		r := t.runs.At(id)
		start := t.slots.alloc(int(r.len), id)
		t.moveSlots(r.space, r.start, start, int(r.len))
		t.freeSlots(r)
		r.start, r.head, r.tail = start, 0, 0
		moved += int(r.len)
	}
}

func (s *slots) isLeaving(slot uint32) bool {
	return s.leaving != 0 && slot>>pageBits == s.leaving
}

// nextLeaving returns a slot whose run has to move, or 0.
func (s *slots) nextLeaving() uint32 {
	if s.leaving == 0 && !s.chooseLeaving() {
		return 0
	}
	slot := s.leaving << pageBits
	for s.owner(slot) == 0 {
		slot += uint32(s.size(slot))
	}
	return slot
}

// chooseLeaving takes the next page, in turn, of which a sixteenth is free.
// In turn, because the emptiest may be the very one that is being filled.
func (s *slots) chooseLeaving() bool {
	used := (len(s.pages)-len(s.vacant))*pageSlots - s.free
	if s.free < used/12+repackFloor {
		return false
	}
	for range s.pages {
		s.sweep = (s.sweep + 1) % uint32(len(s.pages))
		free := s.frees[s.sweep]
		if s.sweep == 0 || free < pageSlots/16 || free == pageSlots {
			continue // slot 0 cannot leave, and an empty page needs no help
		}
		p, first := s.pages[s.sweep], s.sweep<<pageBits
		for o := uint32(0); o < pageSlots; {
			if p.run[o] != 0 {
				o++
				continue
			}
			s.drop(first + o)
			o += uint32(s.size(first + o))
		}
		s.leaving = s.sweep
		return true
	}
	return false
}
