package index

import (
	"unsafe"

	"github.com/kvstored/kvstored/internal/base"
)

const (
	bucketPlaces   = 12 // what fits one cache line
	segmentBuckets = 32
	// A full segment splits in two. Seven eighths keeps most entries in their
	// home bucket.
	segmentFull  = segmentBuckets * bucketPlaces * 7 / 8
	pageSegments = 64 // 128 KiB
)

// bucket is one cache line. A place is empty when its slot is 0. over counts
// the entries that passed this bucket because it was full: a search goes on
// while it is not zero, and removal needs no tombstones.
type bucket struct {
	slot [bucketPlaces]uint32
	tag  [bucketPlaces]uint8
	over uint32
}

type segment [segmentBuckets]bucket

// table maps 64-bit hashes to slots by extendible hashing: the top bits of a
// hash choose an entry of dir, which names a segment; the low bits choose a
// bucket in it and the tag. Growing splits one segment, at most 336 entries.
type table struct {
	hashOf func(slot uint32) uint64 // of an entry, when its segment splits
	dir    []uint32                 // segment numbers, 1 << depth of them
	depth  uint8
	pages  []*[pageSegments]segment
	depths []uint8 // by segment: how many top bits its entries share
	counts []uint16
}

func newTable(hashOf func(uint32) uint64) table {
	t := table{hashOf: hashOf}
	t.dir = []uint32{t.addSegment(0)}
	return t
}

func (t *table) addSegment(depth uint8) uint32 {
	n := uint32(len(t.depths))
	if n%pageSegments == 0 {
		t.pages = append(t.pages, new([pageSegments]segment))
	}
	t.depths = append(t.depths, depth)
	t.counts = append(t.counts, 0)
	return n
}

func (t *table) segment(n uint32) *segment {
	return &t.pages[n/pageSegments][n%pageSegments]
}

func (t *table) number(h uint64) uint32 { return t.dir[h>>(64-t.depth)] }

func home(h uint64) (bucket uint64, tag uint8) {
	return h % segmentBuckets, uint8(h / segmentBuckets)
}

// find returns the first slot stored under h that is accepted, or 0.
func (t *table) find(h uint64, accept func(slot uint32) bool) uint32 {
	seg := t.segment(t.number(h))
	b, tag := home(h)
	for range segmentBuckets {
		bk := &seg[b]
		for i, g := range &bk.tag {
			if g == tag && bk.slot[i] != 0 && accept(bk.slot[i]) {
				return bk.slot[i]
			}
		}
		if bk.over == 0 {
			return 0
		}
		b = (b + 1) % segmentBuckets
	}
	return 0
}

// place returns where slot is stored under h, and how many buckets from its home; it must
// be. nil, for one that is not, is a broken invariant: its chunk is found no more.
func (t *table) place(h uint64, slot uint32) (at *uint32, passed uint64) {
	seg := t.segment(t.number(h))
	b, _ := home(h)
	for passed = range segmentBuckets {
		bk := &seg[(b+passed)%segmentBuckets]
		for i := range bk.slot {
			if bk.slot[i] == slot {
				return &bk.slot[i], passed
			}
		}
	}
	base.Broken("radix: slot %d is not in the table", slot)
	return nil, 0
}

// move says that the chunk of slot from is in slot to now.
func (t *table) move(h uint64, from, to uint32) {
	if at, _ := t.place(h, from); at != nil {
		*at = to
	}
}

// insert stores slot under h. The caller has made sure that it is not there.
func (t *table) insert(h uint64, slot uint32) {
	for t.counts[t.number(h)] >= segmentFull {
		t.split(h)
	}
	n := t.number(h)
	t.counts[n]++
	t.segment(n).insert(h, slot)
}

func (s *segment) insert(h uint64, slot uint32) {
	b, tag := home(h)
	for {
		bk := &s[b]
		for i := range bk.slot {
			if bk.slot[i] == 0 {
				bk.slot[i], bk.tag[i] = slot, tag
				return
			}
		}
		bk.over++
		b = (b + 1) % segmentBuckets
	}
}

// remove forgets slot, which must be stored under h.
func (t *table) remove(h uint64, slot uint32) {
	at, passed := t.place(h, slot)
	if at == nil {
		return
	}
	*at = 0
	n := t.number(h)
	t.counts[n]--
	seg := t.segment(n)
	b, _ := home(h)
	for i := range passed {
		seg[(b+i)%segmentBuckets].over-- // it passed here when it was inserted
	}
}

// split divides the segment of h by the next bit of its entries' hashes.
func (t *table) split(h uint64) {
	low := t.number(h)
	depth := t.depths[low]
	if depth == t.depth {
		t.double()
	}
	high := t.addSegment(depth + 1)
	t.depths[low]++
	// The directory entries of one segment are neighbours; the upper half
	// of them goes to the new one.
	width := 1 << (t.depth - depth)
	first := int(h>>(64-depth)) * width
	for i := first + width/2; i < first+width; i++ {
		t.dir[i] = high
	}
	old := *t.segment(low)
	*t.segment(low) = segment{}
	t.counts[low] = 0
	for b := range old {
		for _, slot := range old[b].slot {
			if slot == 0 {
				continue
			}
			h := t.hashOf(slot)
			n := t.number(h)
			t.counts[n]++
			t.segment(n).insert(h, slot)
		}
	}
}

// double gives every directory entry twice. It copies 4 bytes for each two
// or so hundred chunks: a tenth of a millisecond at ten million.
func (t *table) double() {
	dir := make([]uint32, 2*len(t.dir))
	for i, n := range t.dir {
		dir[2*i], dir[2*i+1] = n, n
	}
	t.dir = dir
	t.depth++
}

func (t *table) bytes() int64 {
	const page = int64(unsafe.Sizeof([pageSegments]segment{}))
	return int64(len(t.pages))*page + int64(cap(t.pages)*8+cap(t.dir)*4+cap(t.depths)+cap(t.counts)*2)
}
