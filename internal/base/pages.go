package base

// A page holds 4,096 records. Growing by whole pages copies nothing but the
// directory (8 bytes a page), so that no call stalls when millions of records
// become more; doubling one slice of ten million would copy 700 MB at once.
const pageBits = 12

// Pages is a slice of T that grows without moving its records. Where T has no
// pointers the garbage collector sees one pointer for 4,096 records.
type Pages[T any] struct {
	dir []*[1 << pageBits]T
	n   uint32
}

// Len is how many records there are.
func (p *Pages[T]) Len() uint32 { return p.n }

// At returns record i, of those that there are.
func (p *Pages[T]) At(i uint32) *T { return &p.dir[i>>pageBits][i&(1<<pageBits-1)] }

// Grow appends a zero record and returns its number.
func (p *Pages[T]) Grow() uint32 {
	p.Reach(p.n)
	return p.n - 1
}

// Reach makes all records up to i.
func (p *Pages[T]) Reach(i uint32) {
	for int(i>>pageBits) >= len(p.dir) {
		p.dir = append(p.dir, new([1 << pageBits]T))
	}
	p.n = max(p.n, i+1)
}

// Pool is records that come and go, by number. Number 0 is none: a zero record, once
// Init or Take was called.
type Pool[T any] struct {
	Pages[T]
	free  Pages[uint32] // the first spare of them
	spare uint32
}

// Init makes record 0.
func (p *Pool[T]) Init() { p.Reach(0) }

// Take returns the number of a zero record.
func (p *Pool[T]) Take() uint32 {
	if p.spare > 0 {
		p.spare--
		return *p.free.At(p.spare)
	}
	p.Init()
	return p.Grow()
}

// Give takes a record back.
func (p *Pool[T]) Give(i uint32) {
	*p.At(i) = *new(T)
	p.free.Reach(p.spare)
	*p.free.At(p.spare) = i
	p.spare++
}

// Used is how many records are taken.
func (p *Pool[T]) Used() int { return int(max(p.n, 1)-1) - int(p.spare) }
