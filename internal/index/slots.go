package index

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

const (
	pageBits  = 14
	pageSlots = 1 << pageBits // 409,600 bytes a page: mapping one is no stall
	pageMask  = pageSlots - 1
)

// page holds the slots' state in columns, so that hashes and locations of
// a run are contiguous.
type page struct {
	hash [pageSlots]Hash
	run  [pageSlots]uint32 // who owns the slot; 0 is free
	next [pageSlots]uint32 // in the chain of the table
	loc  [pageSlots]Loc
}

const pageBytes = int64(unsafe.Sizeof(page{}))

// slots hands out stretches of slots: two-level segregated fit (Masmano et
// al., "TLSF", ECRTS 2004) with four bins per power of two, which fit the
// bits of one word. A free stretch keeps its links in its own hash bytes and
// a slot without an owner is free, so neighbours coalesce without any tags.
// Slot 0 is never handed out. A stretch lies within one page.
type slots struct {
	pages  []*page
	marks  []*marks // by page; nil where no slot has one
	frees  []int32  // free slots by page
	vacant []uint32 // numbers of pages given back to the collector
	bins   [64]uint32
	filled uint64 // bit b is set when bins[b] has a stretch
	free   int

	leaving uint32 // page being emptied, its stretches are in no bin; 0 is none
	sweep   uint32 // page that left last
}

func (s *slots) at(slot uint32) (*page, uint32) {
	return s.pages[slot>>pageBits], slot & pageMask
}

func (s *slots) hash(slot uint32) Hash {
	p, o := s.at(slot)
	return p.hash[o]
}

func (s *slots) owner(slot uint32) uint32 {
	p, o := s.at(slot)
	return p.run[o]
}

func (s *slots) next(slot uint32) *uint32 {
	p, o := s.at(slot)
	return &p.next[o]
}

func (s *slots) loc(slot uint32) *Loc {
	p, o := s.at(slot)
	return &p.loc[o]
}

// hashes and locs are the columns of n slots of one stretch.
func (s *slots) hashes(slot uint32, n int) []Hash {
	p, o := s.at(slot)
	return p.hash[o : int(o)+n]
}

func (s *slots) locs(slot uint32, n int) []Loc {
	p, o := s.at(slot)
	return p.loc[o : int(o)+n]
}

// own makes run the owner of n slots.
func (s *slots) own(slot uint32, n int, run uint32) {
	if n == 0 {
		return
	}
	p, o := s.at(slot)
	owners := p.run[o : int(o)+n]
	for i := range owners {
		owners[i] = run
	}
}

// alloc returns n <= pageSlots slots owned by run, with stale contents.
func (s *slots) alloc(n int, run uint32) uint32 {
	slot := s.bins[floorBin(n)] // its first stretch may just fit
	if slot == 0 || s.size(slot) < n {
		fit := s.filled >> ceilBin(n) << ceilBin(n)
		if fit == 0 {
			s.addPage()
			return s.alloc(n, run)
		}
		slot = s.bins[bits.TrailingZeros64(fit)]
	}
	s.cut(slot, n, run, false)
	return slot
}

// takeAfter makes the n slots from slot on run's own if they are free.
func (s *slots) takeAfter(slot uint32, n int, run uint32) bool {
	if slot&pageMask == 0 || s.isLeaving(slot) || s.owner(slot) != 0 || s.size(slot) < n {
		return false
	}
	s.cut(slot, n, run, false)
	return true
}

// takeBefore does the same for the n slots that end before slot.
func (s *slots) takeBefore(slot uint32, n int, run uint32) bool {
	if slot&pageMask == 0 || s.isLeaving(slot) || s.owner(slot-1) != 0 {
		return false
	}
	size := s.footer(slot - 1)
	if size < n {
		return false
	}
	s.cut(slot-uint32(size), n, run, true)
	return true
}

// cut takes n slots off one end of the free stretch at slot.
func (s *slots) cut(slot uint32, n int, run uint32, fromEnd bool) {
	size := s.size(slot)
	s.drop(slot)
	taken, rest := slot, slot+uint32(n)
	if fromEnd {
		taken, rest = slot+uint32(size-n), slot
	}
	s.own(taken, n, run)
	s.count(taken, -n)
	if size > n {
		s.put(rest, size-n)
	}
}

// release frees n slots and joins them with free neighbours.
func (s *slots) release(slot uint32, n int) {
	if n == 0 {
		return
	}
	s.own(slot, n, 0)
	s.count(slot, n)
	if slot&pageMask != 0 && s.owner(slot-1) == 0 {
		before := s.footer(slot - 1)
		slot -= uint32(before)
		n += before
		s.drop(slot)
	}
	if end := slot + uint32(n); end&pageMask != 0 && s.owner(end) == 0 {
		n += s.size(end)
		s.drop(end)
	}
	// An empty page goes when there is another page's worth of room, so that
	// a tree at a page's edge does not allocate and free it again and again.
	if n == pageSlots && (s.isLeaving(slot) || s.free >= 2*pageSlots) {
		s.removePage(slot >> pageBits)
		return
	}
	s.put(slot, n)
}

func (s *slots) count(slot uint32, n int) {
	s.free += n
	s.frees[slot>>pageBits] += int32(n)
}

func (s *slots) addPage() {
	n := uint32(len(s.pages))
	if k := len(s.vacant); k > 0 {
		n, s.vacant = s.vacant[k-1], s.vacant[:k-1]
		s.pages[n] = new(page)
	} else {
		s.pages = append(s.pages, new(page))
		s.frees = append(s.frees, 0)
		s.marks = append(s.marks, nil)
	}
	first, size := n<<pageBits, pageSlots
	if n == 0 { // slot 0 means "none" everywhere
		s.pages[0].run[0] = ^uint32(0)
		first, size = 1, pageSlots-1
	}
	s.count(first, size)
	s.put(first, size)
}

// removePage gives back a page that is free and in no bin.
func (s *slots) removePage(n uint32) {
	s.count(n<<pageBits, -pageSlots)
	s.pages[n], s.marks[n] = nil, nil
	s.vacant = append(s.vacant, n)
	if n == s.leaving {
		s.leaving = 0
	}
}

func (s *slots) bytes() int64 {
	return int64(len(s.pages)-len(s.vacant))*pageBytes + int64(cap(s.pages)*16+cap(s.frees)*4+cap(s.vacant)*4) + s.markBytes()
}

// A free stretch: its first slot's hash holds size, next and previous of its
// bin, its last slot's hash holds the size once more. In a stretch of one
// slot all four lie side by side.
const (
	sizeAt, nextAt, prevAt, footerAt = 0, 4, 8, 12
)

func (s *slots) word(slot uint32, at int) []byte {
	p, o := s.at(slot)
	return p.hash[o][at : at+4]
}

func (s *slots) load(slot uint32, at int) uint32 {
	return binary.LittleEndian.Uint32(s.word(slot, at))
}

func (s *slots) store(slot uint32, at int, v uint32) {
	binary.LittleEndian.PutUint32(s.word(slot, at), v)
}

func (s *slots) size(slot uint32) int   { return int(s.load(slot, sizeAt)) }
func (s *slots) footer(slot uint32) int { return int(s.load(slot, footerAt)) }

// put files a free stretch in its bin.
func (s *slots) put(slot uint32, n int) {
	s.store(slot, sizeAt, uint32(n))
	s.store(slot+uint32(n)-1, footerAt, uint32(n))
	if s.isLeaving(slot) {
		return
	}
	b := floorBin(n)
	next := s.bins[b]
	s.store(slot, nextAt, next)
	s.store(slot, prevAt, 0)
	if next != 0 {
		s.store(next, prevAt, slot)
	}
	s.bins[b] = slot
	s.filled |= 1 << b
}

// drop takes a free stretch out of its bin.
func (s *slots) drop(slot uint32) {
	if s.isLeaving(slot) {
		return
	}
	next, prev := s.load(slot, nextAt), s.load(slot, prevAt)
	if next != 0 {
		s.store(next, prevAt, prev)
	}
	if prev != 0 {
		s.store(prev, nextAt, next)
		return
	}
	b := floorBin(s.size(slot))
	s.bins[b] = next
	if next == 0 {
		s.filled &^= 1 << b
	}
}

// floorBin is the bin a stretch of n slots is filed in: 1, 2, 3, then four to
// each power of two.
func floorBin(n int) uint {
	e := bits.Len(uint(n)) - 1
	if e < 2 {
		return uint(n - 1)
	}
	return uint(3 + (e-2)*4 + n>>(e-2)&3)
}

// ceilBin is the first bin in which every stretch has at least n slots.
func ceilBin(n int) uint {
	if e := bits.Len(uint(n)) - 1; e > 2 {
		n += 1<<(e-2) - 1
	}
	return floorBin(n)
}
