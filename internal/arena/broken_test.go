package arena

import (
	"bytes"
	"testing"

	"github.com/kvstored/kvstored/internal/base"
)

// In production a handle whose block was freed is good for nothing, and harms no other block.
func TestHandleOfAFreedBlock(t *testing.T) {
	t.Cleanup(base.SurviveBroken())
	a := newTest(t, Options{CapacityBytes: 1 << 20})
	b := mustAlloc(t, a, AlignBytes)
	b.Seal()
	b.Release()
	c := mustAlloc(t, a, AlignBytes) // with the same id
	want := pattern(AlignBytes, 1)
	sum := c.Write(want)
	c.SealSum(sum)
	c.SetTag(7)
	for name, use := range map[string]func(b Block) bool{
		"release":   func(b Block) bool { b.Release(); return true },
		"retain":    func(b Block) bool { b.Retain(); return true },
		"bytes":     func(b Block) bool { return len(b.Bytes())+len(b.Padded())+b.Len() == 0 },
		"sums":      func(b Block) bool { return !b.Sealed() && !b.Clear() && !b.Verify() && b.Sum() == 0 },
		"write":     func(b Block) bool { return b.Write(pattern(AlignBytes, 2)) != sum },
		"seal":      func(b Block) bool { b.Seal(); return !b.Sealed() },
		"tag":       func(b Block) bool { b.SetTag(8); return b.Tag() == 0 },
		"by its id": func(Block) bool { return !a.Block(1<<31, 0).Sealed() && a.Block(0, 0).Len() == 0 },
	} {
		reports := base.BrokenCount()
		if ok := use(b); !ok || base.BrokenCount() == reports {
			t.Errorf("%s: %t, %d reports", name, ok, base.BrokenCount()-reports)
		}
	}
	c.Write(pattern(AlignBytes, 2)) // it is sealed
	c.SealSum(1)
	if !bytes.Equal(c.Bytes(), want) || c.Sum() != sum || c.Refs() != 1 || c.Tag() != 7 {
		t.Errorf("the next block has sum %x, want %x; %d references, tag %d", c.Sum(), sum, c.Refs(), c.Tag())
	}
	c.Release()
}

// A block whose references go below zero keeps its memory for good.
func TestReleasedTooOften(t *testing.T) {
	for name, use := range map[string]func(b Block){
		"release": Block.Release,
		"retain":  func(b Block) { b.Retain() },
	} {
		t.Cleanup(base.SurviveBroken())
		a := newTest(t, Options{CapacityBytes: 2 * AlignBytes})
		b := mustAlloc(t, a, AlignBytes)
		s, off := b.live(), b.Offset()
		s.refs.Store(0) // as where its last two holders let go at once
		a.free(b.id, off, AlignBytes)
		reports := base.BrokenCount()
		use(b)
		if n := base.BrokenCount() - reports; n != 1 {
			t.Errorf("%s: %d reports", name, n)
		}
		c := mustAlloc(t, a, AlignBytes)
		if c.Offset() == off {
			t.Errorf("%s: the memory is given out", name)
		}
		if _, err := a.Alloc(AlignBytes); err == nil {
			t.Errorf("%s: so is it once more", name)
		}
		c.Release()
		a.mu.space.Free(off, AlignBytes)
	}
}
