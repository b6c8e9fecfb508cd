package extent

import "math"

// A record is addressed by its number. Record 0 is the end of the space: a
// zero-sized live extent that closes the ring of records in address order, and
// doubles as the end of the free lists, which never hold it.
const (
	end  uint32 = 0
	none uint32 = 0
	// live in place of a free list's link marks an extent handed out.
	live uint32 = math.MaxUint32
)

// record describes one extent, live or free. It holds no pointer, so the
// garbage collector does not look into it.
type record struct {
	start, units       int64
	prev, next         uint32 // neighbours in address order
	prevFree, nextFree uint32 // neighbours in the free list; prevFree == live: handed out, and nextFree is the tag
}

func (r *record) isFree() bool { return r.prevFree != live }

// pageRecords keeps a page at 8 KiB: small beside the allocator of a segment
// file, and adding one never stalls.
const pageRecords = 256

// records is a growing table of records. Pages never move, so a *record stays
// good while others are taken.
type records struct {
	pages []*[pageRecords]record
	used  uint32 // records ever taken
	spare uint32 // list of records given back, through next
}

func (t *records) init(units int64) {
	i := t.take(units, 0)
	r := t.at(i)
	r.prev, r.next, r.prevFree = i, i, live
}

func (t *records) at(i uint32) *record {
	return &t.pages[i/pageRecords][i%pageRecords]
}

// take returns a record that is in no list and linked to nothing.
func (t *records) take(start, units int64) uint32 {
	i := t.spare
	if i != none {
		t.spare = t.at(i).next
	} else {
		i = t.used
		if int(i/pageRecords) == len(t.pages) {
			t.pages = append(t.pages, new([pageRecords]record))
		}
		t.used++
	}
	*t.at(i) = record{start: start, units: units}
	return i
}

// link puts record i before next in address order.
func (t *records) link(i, next uint32) {
	prev := t.at(next).prev
	r := t.at(i)
	r.prev, r.next = prev, next
	t.at(prev).next = i
	t.at(next).prev = i
}

// unlink takes record i out of the address order and gives it back.
func (t *records) unlink(i uint32) {
	r := t.at(i)
	t.at(r.prev).next = r.next
	t.at(r.next).prev = r.prev
	*r = record{next: t.spare}
	t.spare = i
}
