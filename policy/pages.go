package policy

const pageBits = 12 // 4,096 records: a page of nodes is 64 KiB, zeroed in some 10 µs

// pages is a slice of T that grows without moving its records.
type pages[T any] struct {
	dir []*[1 << pageBits]T
}

// at returns record i, which reach has made.
func (p *pages[T]) at(i uint32) *T {
	return &p.dir[i>>pageBits][i&(1<<pageBits-1)]
}

// reach makes all records up to i.
func (p *pages[T]) reach(i uint32) {
	for int(i>>pageBits) >= len(p.dir) {
		p.dir = append(p.dir, new([1 << pageBits]T))
	}
}
