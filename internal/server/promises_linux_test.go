package server_test

import (
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/wire"
)

// TestDeleteGoesPastHoles: a delete is no prefix operation, and leaves alone what is
// being filled.
func TestDeleteGoesPastHoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c, ctx := r.dial(client.Options{}), t.Context()
		p := chain(1, 6)
		r.store(p, 0, 5)
		filling := *p
		filling.Skip = 5
		f, err := c.Reserve(ctx, client.Chain(&filling), client.ReserveOptions{Size: size})
		r.must(err)
		if n, err := c.DeletePrompt(ctx, alone(p.Hashes[1])); err != nil || n != 1 {
			t.Errorf("the hole: %d, %v", n, err)
		}
		if n, err := c.DeletePrompt(ctx, client.Chain(p)); err != nil || n != 4 {
			t.Errorf("%d chunks besides the hole, %v", n, err)
		}
		if results, err := f.Commit(ctx); err != nil || len(results) != 1 || results[0].Code != client.ResultStored {
			t.Errorf("what was being filled: %v, %v", results, err)
		}
	})
}

// TestOffsetsAreAligned: offsets of slots and refs are multiples of 4,096, whatever the
// sizes are.
func TestOffsetsAreAligned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.greet(staged)
		p := chain(1, 4)
		sizes := wire.ViewU32s([]uint32{1, size - 1, 4097, 5})
		var m wire.ReserveReply
		c.do(wire.OpReserve, &wire.ReserveRequest{Chain: c.chain(p), Sizes: sizes}, &m)
		if m.Slots.Len() != 4 {
			t.Fatalf("%d slots", m.Slots.Len())
		}
		for i := range 4 {
			if s := m.Slots.At(i); s.Code != wire.CodeOK || s.Offset%4096 != 0 {
				t.Errorf("slot %d: %+v", i, s)
			}
		}
		c.do(wire.OpCommit, &wire.FillRequest{Fill: m.Fill}, &wire.StoreReply{})
		var job wire.PrefetchReply
		c.do(wire.OpPrefetch, &wire.PrefetchRequest{Chain: c.chain(p)}, &job)
		if job.State.Refs.Len() != 4 {
			t.Fatalf("%d refs", job.State.Refs.Len())
		}
		for i := range 4 {
			if ref := job.State.Refs.At(i); ref.Offset%4096 != 0 {
				t.Errorf("ref %d: %+v", i, ref)
			}
		}
	})
}
