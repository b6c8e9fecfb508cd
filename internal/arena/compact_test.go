package arena

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// owner has one reference of each of its blocks, under tags.
type owner struct {
	t      *testing.T
	arena  *Arena
	blocks map[uint32]Block
	sums   map[uint32]uint64
	next   uint32
	refuse bool // move nothing
	moves  int
	beside func() // unless nil, is called before each move: what others do while a run is cleared
}

func newOwner(t *testing.T, capacity int64) *owner {
	return &owner{t: t, arena: newTest(t, Options{CapacityBytes: capacity}), blocks: map[uint32]Block{}, sums: map[uint32]uint64{}}
}

// add stores a block of n bytes, and returns its tag; 0 if there is no room.
func (o *owner) add(n int) uint32 {
	b, err := o.arena.Alloc(n)
	if err != nil {
		return 0
	}
	return o.keep(b)
}

func (o *owner) keep(b Block) uint32 {
	o.next++
	o.sums[o.next] = b.Write(pattern(b.Len(), byte(o.next)))
	b.SetTag(o.next)
	b.SealSum(o.sums[o.next])
	o.blocks[o.next] = b
	return o.next
}

func (o *owner) drop(tag uint32) {
	o.blocks[tag].Release()
	delete(o.blocks, tag)
}

func (o *owner) move(from, to Block) bool {
	tag := from.Tag()
	if to.Tag() != tag {
		o.t.Errorf("block %d has the tag %d, its copy %d", from.ID(), tag, to.Tag())
	}
	if o.beside != nil {
		o.beside()
	}
	if o.refuse || o.blocks[tag] != from { // perhaps a reader has it, and the owner no more
		return false
	}
	o.blocks[tag] = to
	o.moves++
	return true
}

// check wants every payload to be there, and the arena to have nothing else.
func (o *owner) check(used int64) {
	o.t.Helper()
	for tag, b := range o.blocks {
		if !b.Verify() || b.Sum() != o.sums[tag] || b.Refs() != 1 {
			o.t.Fatalf("payload %d is not what it was, or has %d references", tag, b.Refs())
		}
		used += int64(len(b.Padded()))
	}
	if st := o.arena.Stats(); st.UsedBytes != used {
		o.t.Fatalf("%d bytes are in use, want %d: %+v", st.UsedBytes, used, st)
	}
}

// striped fills the arena with blocks of two pages, and frees every second.
func striped(t *testing.T) *owner {
	o := newOwner(t, 64*AlignBytes)
	for o.add(2*AlignBytes-5) != 0 {
	}
	for tag := uint32(1); tag <= 32; tag += 2 {
		o.drop(tag)
	}
	return o
}

func (o *owner) clear() {
	for tag := range o.blocks {
		o.drop(tag)
	}
}

func TestCompactMovesWhatIsInTheWay(t *testing.T) {
	o := striped(t)
	defer o.clear()
	for range 4 { // of 32 pages that are free, 8 each
		n := 8*AlignBytes - 1
		if _, err := o.arena.Alloc(n); !errors.Is(err, ErrFull) {
			t.Fatalf("there is a run already: %v", err)
		}
		b, err := o.arena.Compact(t.Context(), n, o.move)
		if err != nil {
			t.Fatal(err)
		}
		if b.Len() != n || b.Refs() != 1 || b.Sealed() || b.Tag() != 0 || b.Padded()[n] != 0 {
			t.Errorf("the new block: %d bytes, %d references, tag %d", b.Len(), b.Refs(), b.Tag())
		}
		if b.Offset()%(8*AlignBytes) != 0 {
			t.Errorf("it is at %d", b.Offset())
		}
		o.keep(b)
		o.check(0)
	}
	if o.moves != 8 {
		t.Errorf("%d blocks were moved, want 8", o.moves)
	}
}

func TestCompactLeavesWhatIsInUse(t *testing.T) {
	for name, use := range map[string]func(*owner, Block) (end func()){
		"a second reference": func(_ *owner, b Block) func() { return b.Retain().Release },
		"the owner refuses":  func(o *owner, _ Block) func() { o.refuse = true; return func() {} },
		"wrong bytes":        func(_ *owner, b Block) func() { b.Bytes()[1] ^= 1; return func() { b.Bytes()[1] ^= 1 } },
	} {
		t.Run(name, func(t *testing.T) {
			o := striped(t)
			defer o.clear()
			var ends []func()
			for _, b := range o.blocks {
				ends = append(ends, use(o, b))
			}
			if _, err := o.arena.Compact(t.Context(), 8*AlignBytes, o.move); !errors.Is(err, ErrFull) {
				t.Errorf("error %v, want ErrFull", err)
			}
			for _, end := range ends {
				end()
			}
			o.check(0)
			if o.moves != 0 {
				t.Errorf("%d blocks were moved", o.moves)
			}
		})
	}
}

// An owner whose reader has the block already gives it up, and the reader keeps
// it; the run is not free then.
func TestCompactBesideAReader(t *testing.T) {
	o := striped(t)
	defer o.clear()
	var late []Block
	_, err := o.arena.Compact(t.Context(), 8*AlignBytes, func(from, to Block) bool {
		if !o.move(from, to) {
			return false
		}
		late = append(late, from.Retain())
		return true
	})
	if !errors.Is(err, ErrFull) {
		t.Errorf("error %v, want ErrFull", err)
	}
	if o.moves == 0 || o.moves > candidates {
		t.Errorf("%d blocks were moved, want one of each run that was tried", o.moves)
	}
	used := int64(0)
	for _, b := range late {
		if !b.Verify() || b.Refs() != 1 {
			t.Errorf("the reader's block has %d references", b.Refs())
		}
		used += int64(len(b.Padded()))
	}
	o.check(used)
	for _, b := range late {
		b.Release()
	}
}

func TestCompactErrors(t *testing.T) {
	o := striped(t)
	defer o.clear()
	for _, n := range []int{-1, 0, 65 * AlignBytes, MaxPayload + 1} {
		if _, err := o.arena.Compact(t.Context(), n, o.move); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if _, err := o.arena.Compact(t.Context(), 33*AlignBytes, o.move); !errors.Is(err, ErrFull) {
		t.Errorf("more than is free: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.arena.Compact(ctx, 8*AlignBytes, o.move); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
	o.check(0)
}

// Blocks are stored, held and let go of at random, also while a run is cleared: every
// payload stays whole.
func TestCompactModel(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 7))
		o := newOwner(t, 1<<20)
		held := map[uint32]Block{}
		pick := func() (tag uint32, ok bool) {
			tags := slices.Sorted(maps.Keys(o.blocks))
			if len(tags) == 0 {
				return 0, false
			}
			return tags[r.IntN(len(tags))], true
		}
		drop := func() {
			if tag, ok := pick(); ok && !held[tag].Valid() {
				o.drop(tag)
			}
		}
		size := func() int { return 1 + r.IntN(AlignBytes<<r.IntN(5)) }
		beside := 0
		o.beside = func() {
			if r.IntN(4) > 0 {
				return
			}
			beside++
			for range 2 {
				drop()
			}
			for range 2 {
				o.add(size())
			}
		}
		for range 3000 {
			switch r.IntN(4) {
			case 0:
				drop()
			case 1:
				tag, ok := pick()
				switch b := held[tag]; {
				case !ok:
				case b.Valid():
					b.Release()
					delete(held, tag)
				default:
					held[tag] = o.blocks[tag].Retain()
				}
			default:
				n := size()
				if o.add(n) != 0 {
					continue
				}
				if b, err := o.arena.Compact(t.Context(), n, o.move); err == nil {
					o.keep(b)
				} else if !errors.Is(err, ErrFull) {
					t.Fatal(err)
				}
			}
		}
		for _, b := range held {
			b.Release()
		}
		o.check(0)
		if o.moves == 0 || beside == 0 {
			t.Errorf("%d blocks were moved, others came and went %d times", o.moves, beside)
		}
		o.clear()
	}
}
