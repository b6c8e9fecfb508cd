package base

import (
	"math/rand/v2"
	"testing"
)

// record is one of an Index.
type record struct {
	hash uint64
	next uint32
}

// TestIndex: random records come and go, and a chain leads to each that is there and to no
// other; the buckets are as many as the records, or as many times as many as was said.
func TestIndex(t *testing.T) {
	for each := range uint32(3) {
		each++
		rng := rand.New(rand.NewPCG(uint64(each), 1))
		var pool Pool[record]
		x := NewIndex(each, func(r uint32) uint64 { return pool.At(r).hash }, func(r uint32) *uint32 { return &pool.At(r).next })
		there, most := map[uint32]uint64{}, uint32(0)
		check := func(rec uint32, hash uint64) (found bool) {
			for r := x.Head(hash); r != 0; r = pool.At(r).next {
				found = found || r == rec
				if _, known := there[r]; !known {
					t.Fatalf("record %d is in a chain", r)
				}
			}
			return found
		}
		for range 20_000 {
			if hash := rng.Uint64N(3000); rng.IntN(5) < 3 {
				rec := pool.Take()
				if old, taken := there[rec]; taken || *pool.At(rec) != (record{}) {
					t.Fatalf("record %d is given twice: %d", rec, old)
				}
				there[rec], pool.At(rec).hash = hash, hash
				x.Insert(hash, rec, &pool.At(rec).next)
				most = max(most, x.Len())
			}
			for rec, hash := range there {
				if !check(rec, hash) {
					t.Fatalf("record %d is not found", rec)
				}
				if rng.IntN(2) == 0 {
					x.Remove(hash, rec, &pool.At(rec).next)
					if delete(there, rec); check(rec, hash) {
						t.Fatalf("record %d is found", rec)
					}
					pool.Give(rec)
				}
				break
			}
			if int(x.Len()) != len(there) || pool.Used() != len(there) || x.heads.Len() != max(1, most*each) {
				t.Fatalf("%d and %d records of %d, in %d buckets", x.Len(), pool.Used(), len(there), x.heads.Len())
			}
		}
	}
}

// TestPages: records keep their places while there are more of them.
func TestPages(t *testing.T) {
	var p Pages[int]
	first := p.At(p.Grow())
	*first = 7
	p.Reach(5 << pageBits)
	if n := p.Len(); n != 5<<pageBits+1 || p.At(0) != first || *p.At(n - 1) != 0 || p.Grow() != n {
		t.Errorf("%d records, and %d", n, *p.At(0))
	}
}

// TestBrokenIndex: a record that is in no chain is counted, and the index stays as it is.
func TestBrokenIndex(t *testing.T) {
	t.Cleanup(SurviveBroken())
	next := make([]uint32, 8)
	x := NewIndex(1, func(r uint32) uint64 { return 1 }, func(r uint32) *uint32 { return &next[r] })
	for rec := uint32(1); rec < 5; rec++ {
		x.Insert(1, rec, &next[rec])
	}
	counted := BrokenCount()
	x.Remove(1, 6, &next[6])
	x.Move(1, 6, 7)
	told := 0
	for at := x.Sweep(0, func(uint32) { told++ }); at != 0; at = x.Sweep(at, func(uint32) { told++ }) {
	}
	if n := BrokenCount() - counted; n != 2 || x.Len() != 4 || told != 4 {
		t.Errorf("%d are counted, %d of 4 are left, and %d told", n, x.Len(), told)
	}
}
