package directory

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/kvstored/kvstored/key"
)

// numbered is a key of which only one word is not the same in all of them.
func numbered(n uint64) (k key.Key) {
	k.Space = key.SpaceID{1, 2, 3}
	binary.LittleEndian.PutUint64(k.Hash[:], n)
	return k
}

// A place that is found is the newest of its key that was not cleared, also where sets are
// full; and a directory with room has all.
func TestModel(t *testing.T) {
	for name, c := range map[string]struct {
		keys uint64
		room bool
	}{"with room": {20, true}, "full": {2000, false}} {
		t.Run(name, func(t *testing.T) {
			d, r := newPair(t, 16<<20) // 512 slots
			rng := rand.New(rand.NewPCG(1, 1))
			type put struct {
				off  int64
				size uint32
				sum  uint64
			}
			model, found := map[uint64]put{}, 0
			for i := range uint64(100_000) {
				n := rng.Uint64N(c.keys)
				was, is := model[n]
				switch rng.IntN(6) {
				case 0:
					d.Clear(numbered(n), was.off)
					delete(model, n)
				case 1:
					d.Clear(numbered(n), was.off+AlignBytes) // not its place
				case 2:
					if rng.IntN(4) == 0 {
						d.Forget(numbered(n))
						delete(model, n)
					}
				case 3:
					p := put{rng.Int64N(2000) * AlignBytes, 1 + rng.Uint32N(8<<20), i}
					d.Put(numbered(n), p.off, p.size, p.sum)
					if got, ok := r.Find(numbered(n)); !ok || got.Sum != i {
						t.Fatalf("put %d: found %t, %+v", i, ok, got)
					}
					model[n] = p
				default:
					got, ok := r.Find(numbered(n))
					if ok && (!is || put{got.Offset, got.Size, got.Sum} != was) {
						t.Fatalf("step %d: key %d is found: %+v, put: %t, %+v", i, n, got, is, was)
					}
					if !ok && is && c.room {
						t.Fatalf("step %d: key %d is lost", i, n)
					}
					if ok {
						found++
					}
				}
			}
			if found == 0 {
				t.Error("nothing was found")
			}
		})
	}
}

// Keys that differ in a few bits of one word, as counters do, spread over the sets: with as
// many keys as half the slots nearly all are found.
func TestCountersSpread(t *testing.T) {
	const keys = 1 << 11
	for shift := 0; shift < 52; shift += 3 {
		for word := range 4 {
			d, r := newPair(t, 2*keys*bytesPerSlot)
			at := func(n uint64) (k key.Key) {
				halves := [2][]byte{k.Hash[:], k.Space[:]}
				binary.LittleEndian.PutUint64(halves[word/2][8*(word%2):], n<<shift)
				return k
			}
			for n := range uint64(keys) {
				d.Put(at(n), 0, 1, n)
			}
			lost := 0
			for n := range uint64(keys) {
				if _, ok := r.Find(at(n)); !ok {
					lost++
				}
			}
			if lost > keys/25 { // of random keys 2.1 % go
				t.Errorf("word %d, shifted by %d: %d of %d keys have no slot", word, shift, lost, keys)
			}
		}
	}
}

// Whatever the memory holds, Open refuses it, or a place that is found lies in the arena.
func FuzzOpen(f *testing.F) {
	mem := make([]byte, Bytes(1<<20))
	d, err := New(mem, 1<<20)
	if err != nil {
		f.Fatal(err)
	}
	d.Put(numbered(7), 3*AlignBytes, 100, 9)
	f.Add(mem, uint64(7))
	f.Add(mem[:headerBytes], uint64(7))
	f.Add([]byte{}, uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, n uint64) {
		mem := make([]byte, len(data)+8) // of which the allocator aligns the begin
		copy(mem, data)
		r, err := Open(mem[:len(data):len(data)])
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		if p, ok := r.Find(numbered(n)); ok && (p.Size == 0 || p.Offset < 0 || p.Offset+int64(p.Size) > r.ArenaBytes()) {
			t.Errorf("outside of the arena: %+v", p)
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	good := make([]byte, Bytes(1<<20))
	if _, err := New(good, 1<<20); err != nil {
		t.Fatal(err)
	}
	change := func(word int, to uint64) []byte {
		mem := append([]byte(nil), good...)
		binary.LittleEndian.PutUint64(mem[8*word:], to)
		return mem
	}
	for why, c := range map[string]struct {
		mem  []byte
		want error
	}{
		"empty":          {nil, ErrDamaged},
		"short":          {good[:100], ErrDamaged},
		"cut":            {good[:len(good)-64], ErrDamaged},
		"magic":          {change(headMagic, 1), ErrDamaged},
		"version":        {change(headVersion, Version+1|slotBytes<<32), ErrVersion},
		"bytes of slots": {change(headVersion, Version|128<<32), ErrVersion},
		"no slots":       {change(headSlots, 0), ErrDamaged},
		"odd slots":      {change(headSlots, 24), ErrDamaged},
		"many slots":     {change(headSlots, 1<<63), ErrDamaged},
		"no arena":       {change(headArena, 0), ErrDamaged},
		"large arena":    {change(headArena, maxArena+1), ErrDamaged},
	} {
		if _, err := Open(c.mem); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", why, err, c.want)
		}
	}
	for why, c := range map[string]struct {
		n     int64
		arena int64
	}{"no arena": {Bytes(1), 0}, "negative": {Bytes(1), -1}, "another's": {Bytes(1 << 30), 1 << 20}, "too large": {8192, maxArena + 1}} {
		if _, err := New(make([]byte, c.n), c.arena); err == nil {
			t.Errorf("New with %s gives no error", why)
		}
	}
	if Bytes(maxArena) <= 0 {
		t.Error("the size of the largest directory overflows")
	}
}

// A place in the directory that lies outside of its arena is not found.
func TestFindStaysInside(t *testing.T) {
	d, r := newPair(t, 1<<20)
	for _, c := range []struct {
		off    int64
		size   uint32
		inside bool
	}{{1<<20 - AlignBytes, AlignBytes, true}, {1<<20 - AlignBytes, AlignBytes + 1, false}, {1 << 20, 1, false}, {maxArena - AlignBytes, 1, false}} {
		d.Put(numbered(1), c.off, c.size, 1)
		if p, ok := r.Find(numbered(1)); ok != c.inside || !ok && p != (Place{}) {
			t.Errorf("%d bytes at %d: found %t, %+v", c.size, c.off, ok, p)
		}
	}
}

// Kept and the end are told to readers that are there, and a nil or ended directory takes
// all calls.
func TestKeptAndEnd(t *testing.T) {
	d, r := newPair(t, 1<<20)
	if r.Kept() {
		t.Error("kept from the begin")
	}
	if d.Keep(); !r.Kept() {
		t.Error("Keep is not told")
	}
	d.Put(numbered(1), 0, 1, 1)
	d.Void()
	before := append([]byte(nil), d.mem...)
	for _, d := range []*Directory{d, nil} {
		d.Put(numbered(2), 0, 1, 1)
		d.Clear(numbered(1), 0)
		d.Forget(numbered(1))
		d.Keep()
		d.Void()
	}
	if string(before) != string(d.mem) {
		t.Error("a call after the end has written")
	}
	if _, ok := r.Find(numbered(1)); ok {
		t.Error("found after the end")
	}
}

func TestNothingAllocates(t *testing.T) {
	d, r := newPair(t, 1<<20)
	if n := testing.AllocsPerRun(100, func() {
		d.Put(numbered(1), 0, 1, 1)
		if p, ok := r.Find(numbered(1)); !ok || !r.Holds(p) {
			t.Error("not found")
		}
		d.Clear(numbered(1), 0)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkFind(b *testing.B) {
	mem := make([]byte, Bytes(1<<30))
	d, err := New(mem, 1<<30)
	if err != nil {
		b.Fatal(err)
	}
	r, err := Open(mem)
	if err != nil {
		b.Fatal(err)
	}
	const keys = 1 << 14
	for n := range uint64(keys) {
		d.Put(numbered(n), 0, 1, n)
	}
	b.Run("find", func(b *testing.B) {
		for i := uint64(0); b.Loop(); i++ {
			if p, ok := r.Find(numbered(i % keys)); ok && !r.Holds(p) {
				b.Fatal("it has changed")
			}
		}
	})
	b.Run("put and clear", func(b *testing.B) {
		for i := uint64(0); b.Loop(); i++ {
			d.Put(numbered(i), 0, 1, i)
			d.Clear(numbered(i), 0)
		}
	})
}
