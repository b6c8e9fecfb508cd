package boundary

const poolBits = 10

// pool is values by number, which do not move; 0 is none.
type pool[T any] struct {
	pages []*[1 << poolBits]T
	free  []uint32
	n     uint32 // numbers ever given
	used  int
}

func (p *pool[T]) at(id uint32) *T { return &p.pages[id>>poolBits][id&(1<<poolBits-1)] }

// take returns the number of a zero value.
func (p *pool[T]) take() uint32 {
	p.used++
	if k := len(p.free); k > 0 {
		id := p.free[k-1]
		p.free = p.free[:k-1]
		return id
	}
	p.n++
	if int(p.n>>poolBits) >= len(p.pages) {
		p.pages = append(p.pages, new([1 << poolBits]T))
	}
	return p.n
}

// give takes a value back.
func (p *pool[T]) give(id uint32) {
	*p.at(id) = *new(T)
	p.free = append(p.free, id)
	p.used--
}
