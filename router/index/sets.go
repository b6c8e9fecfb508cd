package index

import (
	"slices"
	"sync/atomic"
)

// setID names a set of elements: 0 is the empty set, with singleton a set of the
// one element in its other bits, and else the place of a set in sets: the page
// and, in units of two words, the offset. Equal sets have equal ids.
type setID uint32

const (
	empty     setID = 0
	singleton setID = 1 << 31

	setPageWords = 1024 // of ordinary pages; a larger set has a page of its own
	unitBits     = 9    // units of two words in an ordinary page
	headWords    = 3    // references, length, hash
)

func one(e element) setID { return singleton | setID(e) }

// element is the one member of a singleton.
func (id setID) element() element { return element(id &^ singleton) }

func (id setID) stored() bool { return id != empty && id&singleton == 0 }

// sets holds each set of two and more elements once, with a count of its
// references. Its words lie in pages without pointers. Their sizes are of
// classes, and a place keeps its class for ever, so that a reader that comes too
// late finds another set there but never something else; versions of blocks tell
// it (block.content).
type sets struct {
	pages atomic.Pointer[[][]uint32] // elements and lengths are read by other goroutines
	used  int                        // words of the last ordinary page
	last  int                        // that page; 0 before the first, for page 0 has no words
	free  [classes]setID             // places that wait, linked through their first word

	table []setID // of all stored sets by their hash: linear probing, at most 3/4 full
	count int
	live  int64 // words of sets in use
	words int64 // words of all pages

	scratch []element
	memo    [4]transition
	next    int // of memo
}

// transition is a change of a set that was just made. It has a reference to both
// sets, so that neither place is used again meanwhile.
type transition struct {
	from, to setID
	want     element
}

// sizes of places in words: steps of a fifth to a third, then doubling.
var sizes = [classes]int{
	6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024,
	1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 23, 1 << 24, 1 << 25, 1 << 26, 1 << 27, 1 << 28,
}

const classes = 41

func classOf(elements int) int {
	class, _ := slices.BinarySearch(sizes[:], elements+headWords)
	return class
}

func newSets() *sets {
	s := &sets{}
	s.pages.Store(&[][]uint32{nil})
	return s
}

// at returns the words of a set from its head on.
func (s *sets) at(id setID) []uint32 {
	return (*s.pages.Load())[id>>unitBits][2*(id&(1<<unitBits-1)):]
}

// get returns a column's mask in a set. It is the writer's.
func (s *sets) get(id setID, c column) mask {
	switch {
	case id == empty:
		return 0
	case !id.stored():
		if e := id.element(); e.column() == c {
			return e.mask()
		}
		return 0
	}
	all := s.elements(id)
	if i, there := find(all, c); there {
		return element(all[i]).mask()
	}
	return 0
}

// elements returns the elements of a stored set, in order. They are the
// writer's to read.
func (s *sets) elements(id setID) []uint32 {
	words := s.at(id)
	return words[headWords : headWords+words[1]]
}

// all appends the elements of any set.
func (s *sets) all(dst []element, id setID) []element {
	switch {
	case id == empty:
	case !id.stored():
		dst = append(dst, id.element())
	default:
		for _, e := range s.elements(id) {
			dst = append(dst, element(e))
		}
	}
	return dst
}

// find returns the place of a column among ordered elements.
func find(all []uint32, c column) (int, bool) {
	low, high := 0, len(all)
	for low < high {
		middle := int(uint(low+high) / 2)
		if element(all[middle]).column() < c {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, low < len(all) && element(all[low]).column() == c
}

// with returns the set that has mask m for a column, and is else like id; an
// empty mask takes the column out. The caller owns a reference to the result,
// and keeps the one to id.
func (s *sets) with(id setID, c column, m mask) setID {
	want := c.with(m)
	if id == empty || id&singleton != 0 && id.element().column() == c {
		if m == 0 {
			return empty
		}
		return one(want)
	}
	for i := range s.memo {
		if t := &s.memo[i]; t.from == id && t.want == want {
			s.retain(t.to)
			return t.to
		}
	}
	to := s.intern(s.changed(id, c, m))
	s.remember(transition{id, to, want})
	return to
}

// changed returns the elements of a set with one change, in scratch.
func (s *sets) changed(id setID, c column, m mask) []element {
	all := s.all(s.scratch[:0], id)
	i, there := slices.BinarySearchFunc(all, c, func(e element, c column) int { return int(e.column()) - int(c) })
	switch {
	case there && m == 0:
		all = slices.Delete(all, i, i+1)
	case there:
		all[i] = c.with(m)
	case m != 0:
		all = slices.Insert(all, i, c.with(m))
	}
	s.scratch = all
	return all
}

// intern returns the id of a set, with one more reference.
func (s *sets) intern(all []element) setID {
	switch len(all) {
	case 0:
		return empty
	case 1:
		return one(all[0])
	}
	hash := hashSet(all)
	if 4*(s.count+1) > 3*len(s.table) {
		s.resize(max(16, 2*len(s.table)))
	}
	i := s.slot(hash)
	for ; s.table[i] != empty; i = s.after(i) {
		if words := s.at(s.table[i]); words[2] == hash && same(words, all) {
			words[0]++
			return s.table[i]
		}
	}
	id := s.place(all, hash)
	s.table[i] = id
	s.count++
	return id
}

func same(words []uint32, all []element) bool {
	if int(words[1]) != len(all) {
		return false
	}
	for i, e := range all {
		if words[headWords+i] != uint32(e) {
			return false
		}
	}
	return true
}

func hashSet(all []element) uint32 {
	h := uint64(len(all))
	for _, e := range all {
		h = (h ^ uint64(e)) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return uint32(h >> 32)
}

// place writes a new set with one reference.
func (s *sets) place(all []element, hash uint32) setID {
	class := classOf(len(all))
	id := s.free[class]
	if id != empty {
		s.free[class] = setID(s.at(id)[0])
	} else {
		id = s.carve(sizes[class])
	}
	words := s.at(id)
	words[0], words[2] = 1, hash
	atomic.StoreUint32(&words[1], uint32(len(all)))
	for i, e := range all {
		atomic.StoreUint32(&words[headWords+i], uint32(e))
	}
	s.live += int64(sizes[class])
	return id
}

// carve takes so many words from the last page, or from a new one.
func (s *sets) carve(size int) setID {
	if size > setPageWords {
		return s.addPage(size)
	}
	if s.last == 0 || s.used+size > setPageWords {
		s.last, s.used = int(s.addPage(setPageWords)>>unitBits), 0
	}
	id := setID(s.last<<unitBits | s.used/2)
	s.used += size
	return id
}

func (s *sets) addPage(size int) setID {
	pages := append(*s.pages.Load(), make([]uint32, size)) // readers of the old slice stop before it
	s.pages.Store(&pages)
	s.words += int64(size)
	return setID((len(pages) - 1) << unitBits)
}

func (s *sets) retain(id setID) {
	if id.stored() {
		s.at(id)[0]++
	}
}

// release gives one reference back. The last takes the set away.
func (s *sets) release(id setID) {
	if !id.stored() {
		return
	}
	words := s.at(id)
	if words[0]--; words[0] > 0 {
		return
	}
	s.unlink(id, words[2])
	class := classOf(int(words[1]))
	words[0] = uint32(s.free[class])
	s.free[class] = id
	s.live -= int64(sizes[class])
}

// remember keeps a transition until forget.
func (s *sets) remember(t transition) {
	s.retain(t.from)
	s.retain(t.to)
	old := s.memo[s.next]
	s.memo[s.next] = t
	s.next = (s.next + 1) % len(s.memo)
	s.release(old.from)
	s.release(old.to)
}

// forget gives back what remember keeps. Each call of the index ends with it.
func (s *sets) forget() {
	for i, t := range s.memo {
		s.memo[i] = transition{}
		s.release(t.from)
		s.release(t.to)
	}
}

func (s *sets) slot(hash uint32) int { return int(hash) & (len(s.table) - 1) }
func (s *sets) after(i int) int      { return (i + 1) & (len(s.table) - 1) }

// unlink takes a set out of the table and moves those behind it up.
func (s *sets) unlink(id setID, hash uint32) {
	i := s.slot(hash)
	for s.table[i] != id {
		i = s.after(i)
	}
	for j := s.after(i); s.table[j] != empty; j = s.after(j) {
		home := s.slot(s.at(s.table[j])[2])
		if (j-home)&(len(s.table)-1) >= (j-i)&(len(s.table)-1) { // its home is not behind the gap
			s.table[i] = s.table[j]
			i = j
		}
	}
	s.table[i] = empty
	s.count--
	if len(s.table) > 16 && 8*s.count < len(s.table) {
		s.resize(len(s.table) / 2)
	}
}

func (s *sets) resize(size int) {
	old := s.table
	s.table = make([]setID, size)
	for _, id := range old {
		if id != empty {
			i := s.slot(s.at(id)[2])
			for s.table[i] != empty {
				i = s.after(i)
			}
			s.table[i] = id
		}
	}
}

// bytes is the memory of all pages and the table; liveBytes that of the sets in
// use.
func (s *sets) bytes() int64     { return 4*s.words + 4*int64(len(s.table)) }
func (s *sets) liveBytes() int64 { return 4*s.live + 6*int64(s.count) }
