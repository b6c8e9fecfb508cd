package arena

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
)

// newTest returns an arena that must be empty when the test ends.
func newTest(t testing.TB, o Options) *Arena {
	t.Helper()
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !a.mu.TryLock() { // a panic has it, and is to be seen
			return
		}
		a.mu.Unlock()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func mustAlloc(t testing.TB, a *Arena, n int) Block {
	t.Helper()
	b, err := a.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// pattern returns n bytes that differ from seed to seed.
func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	for i := 0; i < n; i += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], (uint64(i)+1)*0x9E3779B97F4A7C15+uint64(seed))
		copy(p[i:], word[:])
	}
	return p
}

func mustPanic(t *testing.T, name string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", name)
		}
	}()
	f()
}

func TestAlloc(t *testing.T) {
	a := newTest(t, Options{CapacityBytes: 1<<20 + 5})
	b := mustAlloc(t, a, 5000)
	want := Stats{CapacityBytes: 1 << 20, PopulatedBytes: 1 << 20, UsedBytes: 8192, FreeBytes: 1<<20 - 8192, LargestFreeBytes: 1<<20 - 8192, Blocks: 1}
	if got := a.Stats(); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	if b.Len() != 5000 || len(b.Bytes()) != 5000 || cap(b.Bytes()) != 5000 || len(b.Padded()) != 8192 || cap(b.Padded()) != 8192 {
		t.Errorf("lengths: %d, %d, %d", b.Len(), len(b.Bytes()), len(b.Padded()))
	}
	if &b.Bytes()[0] != &b.Padded()[0] || &b.Bytes()[0] != &a.mapping.mem[b.Offset()] {
		t.Error("Bytes, Padded and Offset do not agree")
	}
	if got := a.Block(b.ID(), 0); got != b || !b.Valid() || (Block{}).Valid() || b.ID() == 0 {
		t.Errorf("handle %v from id %d, want %v", got, b.ID(), b)
	}
	b.Release()
	if got := a.Stats(); got.Blocks != 0 || got.UsedBytes != 0 {
		t.Errorf("stats after release: %+v", got)
	}
}

func TestAllocErrors(t *testing.T) {
	a := newTest(t, Options{CapacityBytes: 4 * AlignBytes})
	for _, n := range []int{-1, 0, 4*AlignBytes + 1, MaxPayload + 1} {
		if _, err := a.Alloc(n); !errors.Is(err, ErrTooLarge) {
			t.Errorf("Alloc(%d): %v", n, err)
		}
	}
	b := mustAlloc(t, a, AlignBytes+1)
	if _, err := a.Alloc(2*AlignBytes + 1); !errors.Is(err, ErrFull) {
		t.Errorf("Alloc in a full arena: %v", err)
	}
	if err := a.Close(); err == nil {
		t.Error("Close unmapped a block that is held")
	}
	b.Release()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if _, err := a.Alloc(1); !errors.Is(err, ErrClosed) {
		t.Errorf("Alloc after Close: %v", err)
	}
}

func TestNewErrors(t *testing.T) {
	for _, o := range []Options{
		{},
		{CapacityBytes: -AlignBytes},
		{CapacityBytes: AlignBytes - 1},
		{CapacityBytes: 1 << 20, HugePages: "yes"},
		{CapacityBytes: 1 << 60},
	} {
		if a, err := New(o); err == nil {
			t.Errorf("New(%+v) succeeded", o)
			a.Close()
		}
	}
}

// The bytes behind a payload reach the disk with it: they must not be what
// another block left there.
func TestPaddingIsZero(t *testing.T) {
	a := newTest(t, Options{CapacityBytes: AlignBytes})
	b := mustAlloc(t, a, AlignBytes)
	b.Write(pattern(AlignBytes, 0xFF))
	b.Release()
	b = mustAlloc(t, a, 100)
	if !bytes.Equal(b.Padded()[100:], make([]byte, AlignBytes-100)) {
		t.Error("padding is not zero")
	}
	b.Release()
}

func TestSealAndVerify(t *testing.T) {
	a := newTest(t, Options{CapacityBytes: 4 << 20})
	for _, n := range []int{1, 100, AlignBytes, 64 << 10, 64<<10 + 1, 1<<20 + 12345} {
		b := mustAlloc(t, a, n)
		src := pattern(n, 1)
		if b.Sealed() || b.Verify() {
			t.Fatal("a new block is sealed")
		}
		sum := b.Write(src)
		if sum != Checksum(src) || !bytes.Equal(b.Bytes(), src) || b.Sealed() {
			t.Fatalf("Write of %d bytes: sum %x, want %x", n, sum, Checksum(src))
		}
		c := mustAlloc(t, a, n)
		copy(c.Bytes(), src)
		b.SealSum(sum)
		if c.Seal() != sum || c.Sum() != sum || b.Sum() != sum || !b.Verify() || !c.Verify() {
			t.Fatalf("%d bytes: seals differ: %x, %x, %x", n, sum, b.Sum(), c.Sum())
		}
		b.Bytes()[n/2] ^= 1
		if b.Verify() {
			t.Errorf("%d bytes: Verify missed a flipped bit", n)
		}
		mustPanic(t, "write after seal", func() { b.Write(src) })
		mustPanic(t, "second seal", func() { b.SealSum(sum) })
		b.Release()
		c.Release()
	}
}

func TestReferences(t *testing.T) {
	a := newTest(t, Options{CapacityBytes: 1 << 20})
	b := mustAlloc(t, a, AlignBytes)
	b.Seal()
	if c := b.Retain(); c != b || b.Refs() != 2 {
		t.Errorf("Retain: %v with %d references", c, b.Refs())
	}
	b.Release()
	if a.Stats().Blocks != 1 {
		t.Error("freed with a reference left")
	}
	b.Release()
	mustPanic(t, "block of a free id", func() { a.Block(b.ID(), 0) })

	// The id is used again, and nothing of the old block is left in it.
	c := mustAlloc(t, a, AlignBytes)
	if c.ID() != b.ID() || c == b || c.Sealed() || c.Sum() != 0 || c.Refs() != 1 {
		t.Errorf("reused id: %v after %v, sealed %t, sum %x, refs %d", c, b, c.Sealed(), c.Sum(), c.Refs())
	}
	for name, use := range map[string]func(){
		"release": b.Release,
		"retain":  func() { b.Retain() },
		"bytes":   func() { b.Bytes() },
		"seal":    func() { b.Seal() },
		"write":   func() { b.Write(nil) },
		"short":   func() { c.Write(nil) },
		"id 0":    func() { a.Block(0, 0) },
		"id":      func() { a.Block(1<<31, 0) },
	} {
		mustPanic(t, name, use)
	}
	c.Release()
}

func TestFreed(t *testing.T) {
	a := newTest(t, Options{CapacityBytes: AlignBytes})
	b := mustAlloc(t, a, 1)
	freed := a.Freed()
	if freed != a.Freed() {
		t.Error("one generation has two channels")
	}
	if _, err := a.Alloc(1); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	select {
	case <-freed:
		t.Fatal("closed before anything was freed")
	default:
	}
	b.Release()
	<-freed
	select {
	case <-a.Freed():
		t.Error("a new generation is closed already")
	default:
	}
}

// Workers fill a small arena, wait for each other's frees, share blocks and
// check that no other worker wrote theirs.
func TestConcurrentUse(t *testing.T) {
	a := newTest(t, Options{CapacityBytes: 1 << 20})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 0))
			for range 100 {
				b := waitAlloc(a, 1+rnd.IntN(150<<10))
				b.SealSum(b.Write(pattern(b.Len(), byte(rnd.Uint32()))))
				shared := a.Block(b.ID(), 0).Retain()
				var readers sync.WaitGroup
				readers.Go(func() {
					if !shared.Verify() {
						t.Error("a shared block changed")
					}
					shared.Release()
				})
				if !b.Verify() {
					t.Error("a block changed")
				}
				b.Release()
				readers.Wait()
			}
		})
	}
	wg.Wait()
	if s := a.Stats(); s.Blocks != 0 || s.FreeBytes != s.CapacityBytes || s.LargestFreeBytes != s.CapacityBytes {
		t.Errorf("something is left: %+v", s)
	}
}

func waitAlloc(a *Arena, n int) Block {
	for {
		freed := a.Freed()
		b, err := a.Alloc(n)
		if err == nil {
			return b
		}
		<-freed
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	a := newTest(t, Options{CapacityBytes: 1 << 20})
	src := pattern(100_000, 3)
	if n := testing.AllocsPerRun(100, func() {
		b, err := a.Alloc(len(src))
		if err != nil {
			t.Fatal(err)
		}
		b.SealSum(b.Write(src))
		b.Retain().Release()
		b.Release()
	}); n != 0 {
		t.Errorf("%v allocations per block", n)
	}
}

// Block state spans many pages of the table, in an arena whose memory is never
// touched.
func TestManyBlocks(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	const n = 100_000
	a := newTest(t, Options{CapacityBytes: n * AlignBytes, HugePages: HugeOff})
	blocks := make([]Block, n)
	for i := range blocks {
		blocks[i] = mustAlloc(t, a, AlignBytes)
		blocks[i].SealSum(uint64(i))
	}
	if _, err := a.Alloc(1); !errors.Is(err, ErrFull) {
		t.Errorf("arena is not full: %v", err)
	}
	for i, b := range blocks {
		if a.Block(b.ID(), 0).Sum() != uint64(i) {
			t.Fatalf("block %d has the sum of another", i)
		}
		b.Release()
	}
}
