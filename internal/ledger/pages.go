package ledger

// A page holds 4,096 records. Growing by whole pages copies nothing but the
// directory (8 bytes a page), so that no call stalls when millions of records
// become more; doubling one slice of ten million would copy 700 MB at once.
const pageBits = 12

// pages is a slice of T that grows without moving its records. T has no
// pointers, so the garbage collector sees one pointer for 4,096 records.
type pages[T any] struct {
	dir []*[1 << pageBits]T
	n   uint32
}

// at returns record i, which grow has returned before.
func (p *pages[T]) at(i uint32) *T {
	return &p.dir[i>>pageBits][i&(1<<pageBits-1)]
}

// grow appends a zero record and returns its number.
func (p *pages[T]) grow() uint32 {
	i := p.n
	if int(i>>pageBits) == len(p.dir) {
		p.dir = append(p.dir, new([1 << pageBits]T))
	}
	p.n++
	return i
}
