package store_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// lapsing is a context that ends when it is looked at once more than left says.
type lapsing struct {
	context.Context
	left, looks int
}

func (l *lapsing) Err() error {
	if l.looks++; l.looks > l.left {
		return context.Canceled
	}
	return nil
}

// A long deletion looks at its context between its parts, and ends there.
func TestDeleteEndsWithContext(t *testing.T) {
	r := newRig(t, options{})
	c := r.putChain(1, 4)
	ks := tiertest.Keys(c, 0, 1)
	for i := range 4 * store.SettleBatch {
		k := key.Key{Space: c.Space}
		k.Hash[0], k.Hash[1], k.Hash[2] = byte(i), byte(i>>8), 0xff
		ks = append(ks, k)
	}
	const parts = 5
	for left := range parts + 2 {
		ctx := &lapsing{Context: t.Context(), left: left}
		n, err := r.Remover.Delete(ctx, ks)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("its context ended at look %d: %v", left+1, err)
		}
		if left == 0 && ctx.looks > 3 {
			t.Errorf("of a deletion that had ended each part was prepared: %d looks", ctx.looks)
		}
		if n > 1 {
			t.Errorf("%d were known", n)
		}
		r.wantIn(c, 4, 0)
	}
	if n, err := r.Remover.Delete(t.Context(), ks); n != 1 || err != nil {
		t.Errorf("%d were known, %v; want 1", n, err)
	}
	r.wantIn(c, 0, 0)
}

// between is a DRAM tier that does something between what a deletion does to it and to the
// tiers below.
type between struct {
	tier.Hot
	do func()
}

func (b *between) HandedOver() {
	b.Hot.HandedOver()
	if do := b.do; do != nil {
		b.do = nil
		do()
	}
}

// A chunk that is stored again while it is deleted, and reaches the disk before it is deleted
// there, does not stay in DRAM as one that is written.
func TestDeleteOfWhatIsStoredMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hot := &between{}
		r := newRig(t, options{
			mode: held,
			hot:  func(h tier.Hot) tier.Hot { hot.Hot = h; return hot },
		})
		c := r.putChain(1, 2)
		hot.do = func() {
			r.put(c, 0, 2, size)
			r.flush()
			if where := r.Where(c.Key(0)); where != tier.Of(tier.CPU)|tier.Of(tier.Disk) {
				t.Errorf("in the middle of its deletion a chunk is in %b", where)
			}
		}
		if n, err := r.Remover.Delete(t.Context(), tiertest.Keys(c, 0, 2)); n != 2 || err != nil || hot.do != nil {
			t.Fatalf("%d were known, %v", n, err)
		}
		r.flush()
		for i := range c.Len() {
			if where := r.Where(c.Key(i)); where == tier.Of(tier.CPU) {
				t.Errorf("chunk %d is in DRAM alone, and nothing writes it", i)
			}
		}
	})
}
