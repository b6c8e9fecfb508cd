package arena

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// model is the slow reference: one bool for each unit.
type model struct {
	used []bool
	tags map[int64]uint32 // by offset, of what was given one
	live []span           // what is handed out, in no order
}

type span struct{ off, n int64 }

func (m *model) set(s span, used bool) {
	for u := s.off / UnitBytes; u < s.off/UnitBytes+toUnits(s.n); u++ {
		m.used[u] = used
	}
}

// isFree reports whether the whole range is within the space and free.
func (m *model) isFree(s span) bool {
	if s.off < 0 || s.n <= 0 || s.off%UnitBytes != 0 {
		return false
	}
	for u := s.off / UnitBytes; u < s.off/UnitBytes+toUnits(s.n); u++ {
		if u >= int64(len(m.used)) || m.used[u] {
			return false
		}
	}
	return true
}

// runs returns the number of free runs, of free units, and the longest run.
func (m *model) runs() (count, free, longest int64) {
	run := int64(0)
	for i, used := range m.used {
		if used {
			run = 0
			continue
		}
		if run++; i == 0 || m.used[i-1] {
			count++
		}
		free++
		longest = max(longest, run)
	}
	return count, free, longest
}

func (m *model) take(s span) {
	m.set(s, true)
	m.live = append(m.live, s)
}

func (m *model) drop(i int) span {
	s := m.live[i]
	m.set(s, false)
	m.live[i] = m.live[len(m.live)-1]
	m.live = m.live[:len(m.live)-1]
	return s
}

// pair runs the same operations on the allocator and on the model.
type pair struct {
	t testing.TB
	a *Allocator
	m model
}

func newPair(t testing.TB, units int) *pair {
	return &pair{t: t, a: NewAllocator(int64(units) * UnitBytes), m: model{used: make([]bool, units), tags: map[int64]uint32{}}}
}

func (p *pair) alloc(n int64) {
	p.t.Helper()
	largest := p.a.LargestFree()
	tag := uint32(n)
	off, ok := p.a.AllocTag(n, tag)
	if ok != (n > 0 && n <= largest) {
		p.t.Fatalf("Alloc(%d) = %t with LargestFree %d", n, ok, largest)
	}
	if !ok {
		return
	}
	if s := (span{off, n}); !p.m.isFree(s) {
		p.t.Fatalf("Alloc(%d) = %d, which is not free", n, off)
	}
	p.m.take(span{off, n})
	p.m.tags[off] = tag
}

func (p *pair) free(i int) {
	s := p.m.drop(i % len(p.m.live))
	p.a.Free(s.off, s.n)
}

func (p *pair) reserve(s span) {
	p.t.Helper()
	want := p.m.isFree(s)
	if got := p.a.Reserve(s.off, s.n); got != want {
		p.t.Fatalf("Reserve(%d, %d) = %t, want %t", s.off, s.n, got, want)
	}
	if want {
		p.m.take(s)
		p.m.tags[s.off] = 0
	}
}

// walk compares what Walk tells, in both directions, and Largest.
func (p *pair) walk() {
	p.t.Helper()
	var ahead, back, free []Extent
	p.a.Walk(0, false, func(x Extent) bool { ahead = append(ahead, x); return true })
	p.a.Walk(p.a.Capacity()-1, true, func(x Extent) bool { back = append(back, x); return true })
	slices.Reverse(back)
	if !slices.Equal(ahead, back) {
		p.t.Fatalf("pieces %v, and from the end %v", ahead, back)
	}
	pos, live := int64(0), 0
	for _, x := range ahead {
		if x.Off != pos || x.Free != p.m.isFree(span{x.Off, x.Bytes}) || !x.Free && x.Tag != p.m.tags[x.Off] {
			p.t.Fatalf("piece %+v at %d, want tag %d", x, pos, p.m.tags[pos])
		}
		if pos += x.Bytes; x.Free {
			free = append(free, x)
		} else {
			live++
		}
	}
	if pos != p.a.Capacity() || live != len(p.m.live) {
		p.t.Fatalf("%d pieces are handed out, want %d; they end at %d", live, len(p.m.live), pos)
	}
	out := make([]Extent, len(free)+1)
	if n := p.a.Largest(out); n != len(free) || n > 0 && out[0].Bytes < p.a.LargestFree()-p.a.LargestFree()/slots {
		p.t.Fatalf("Largest has %d pieces, of %d bytes first; want %d and %d", n, out[0].Bytes, len(free), p.a.LargestFree())
	}
	if n := p.a.Largest(out[:min(2, len(free))]); n != min(2, len(free)) {
		p.t.Fatalf("Largest fills %d", n)
	}
}

// check compares everything that can be observed, and walks the records.
func (p *pair) check() {
	p.t.Helper()
	count, free, longest := p.m.runs()
	if got := p.a.FreeBytes(); got != free*UnitBytes {
		p.t.Fatalf("FreeBytes %d, want %d", got, free*UnitBytes)
	}
	if got := p.a.UsedBytes() + p.a.FreeBytes(); got != p.a.Capacity() {
		p.t.Fatalf("used + free = %d, capacity %d", got, p.a.Capacity())
	}
	if got := p.a.Extents(); got != int64(len(p.m.live)) {
		p.t.Fatalf("Extents %d, want %d", got, len(p.m.live))
	}
	got := p.a.LargestFree() / UnitBytes
	if exact := count <= searchLimit; got > longest || exact && got != longest || got < longest-longest/slots {
		p.t.Fatalf("LargestFree %d units, want %d (%d free runs)", got, longest, count)
	}
	if err := p.a.audit(); err != nil {
		p.t.Fatal(err)
	}
	p.walk()
}

// audit checks the invariants that tie records, lists and index together.
func (a *Allocator) audit() error {
	t := &a.records
	free := map[uint32]bool{}
	pos, prev := int64(0), end
	for i := t.at(end).next; i != end; i = t.at(i).next {
		r := t.at(i)
		switch {
		case r.start != pos || r.units <= 0 || r.prev != prev:
			return fmt.Errorf("record %d: %+v after %d at unit %d", i, *r, prev, pos)
		case r.isFree() && prev != end && t.at(prev).isFree():
			return fmt.Errorf("record %d: two free extents in a row", i)
		case a.index.lookup(t, pos) != i || a.index.covering(t, pos+r.units-1) != i:
			return fmt.Errorf("record %d: the index does not find it", i)
		}
		if r.isFree() {
			free[i] = true
		}
		pos, prev = pos+r.units, i
	}
	if pos != a.units {
		return fmt.Errorf("records end at unit %d of %d", pos, a.units)
	}
	for row := range a.bins.heads {
		for slot, head := range a.bins.heads[row] {
			if set := a.bins.slots[row]>>slot&1 == 1; set != (head != none) {
				return fmt.Errorf("list %d/%d: bit %t, head %d", row, slot, set, head)
			}
			for i := head; i != none; i = t.at(i).nextFree {
				if r, s := class(t.at(i).units); r != row || s != slot || !free[i] {
					return fmt.Errorf("list %d/%d holds record %d of %d units", row, slot, i, t.at(i).units)
				}
				delete(free, i)
			}
		}
		if set := a.bins.rows>>row&1 == 1; set != (a.bins.slots[row] != 0) {
			return fmt.Errorf("row %d: bit %t", row, set)
		}
	}
	if len(free) > 0 {
		return fmt.Errorf("free records on no list: %v", free)
	}
	return nil
}

func TestModel(t *testing.T) {
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		p := newPair(t, 1+rnd.IntN(3000))
		for step := range 4000 {
			switch op := rnd.IntN(10); {
			case op < 5:
				p.alloc(rnd.Int64N(UnitBytes << rnd.IntN(7)))
			case op < 9 && len(p.m.live) > 0:
				p.free(rnd.IntN(len(p.m.live)))
			default:
				off := rnd.Int64N(p.a.Capacity()) &^ (UnitBytes - 1)
				p.reserve(span{off, 1 + rnd.Int64N(20*UnitBytes)})
			}
			if step%16 == 0 {
				p.check()
			}
		}
		for len(p.m.live) > 0 {
			p.free(0)
		}
		p.check()
		if p.a.LargestFree() != p.a.Capacity() {
			t.Fatalf("seed %d: %d free in one piece of %d after freeing all", seed, p.a.LargestFree(), p.a.Capacity())
		}
	}
}

func FuzzAllocator(f *testing.F) {
	f.Add(uint16(64), []byte{0, 1, 0, 255, 1, 0, 2, 7, 2, 7})
	f.Add(uint16(700), []byte{0, 63, 0, 64, 0, 65, 1, 1, 1, 0, 0, 63, 3, 3})
	f.Fuzz(func(t *testing.T, units uint16, ops []byte) {
		p := newPair(t, int(units%4096))
		for ; len(ops) >= 2; ops = ops[2:] {
			arg := int64(ops[1])
			switch ops[0] % 4 {
			case 0:
				p.alloc(arg * UnitBytes)
			case 1:
				if len(p.m.live) > 0 {
					p.free(int(arg))
				}
			case 2:
				p.reserve(span{arg * 16 * UnitBytes, int64(ops[0]) * 1000})
			case 3:
				p.alloc(arg*arg + 1)
			}
		}
		p.check()
	})
}
