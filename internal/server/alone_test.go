package server_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// numbers are the bits that are set.
func numbers(bits wire.U32s) (out []int) {
	for i := range 32 * bits.Len() {
		if bits.At(i/32)>>(i%32)&1 != 0 {
			out = append(out, i)
		}
	}
	return out
}

// A prefetch that asks for single chunks leases those behind the leading run too, until it
// ends in whichever way, and has no refs of them.
func TestAlone(t *testing.T) {
	for name, end := range map[string]func(*raw, uint64){
		"released":        func(c *raw, id uint64) { c.do(wire.OpRelease, &wire.IDRequest{ID: id}, new(wire.ReleaseReply)) },
		"its client left": func(c *raw, _ uint64) { c.nc.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, options{})
				p := chain(1, 80)
				for _, at := range [][2]int{{0, 3}, {5, 6}, {31, 33}, {70, 71}} {
					r.store(p, at[0], at[1])
				}
				c := r.greet(0)
				var reply wire.PrefetchReply
				c.do(wire.OpPrefetch, &wire.PrefetchRequest{Chain: c.chain(p), Flags: wire.PrefetchAlone}, &reply)
				if got := numbers(reply.Alone); !slices.Equal(got, []int{5, 31, 32, 70}) || reply.Match.Total.Chunks != 3 || reply.State.Refs.Len() != 3 {
					t.Errorf("alone %v, matched %d, %d refs", got, reply.Match.Total.Chunks, reply.State.Refs.Len())
				}
				if n := r.leased(); n != 7*size {
					t.Errorf("%d bytes are leased", n)
				}
				end(c, reply.Job)
				r.until("nothing is leased", func() bool { return r.leased() == 0 })
			})
		})
	}
}

// Of several ranks each chunk has a bit for each of them; skipped chunks have none.
func TestAloneOfRanks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		spaces, cs := rankChains(6, 2)
		r.store(cs[0], 0, 6)
		r.store(cs[1], 1, 3)
		r.store(cs[1], 5, 6)
		c := r.greet(0)
		handle := func(s key.Space) uint32 {
			var open wire.OpenSpaceReply
			c.do(wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: s}, &open)
			return open.Space.Handle
		}
		ask := wire.PrefetchRequest{Chain: c.chain(cs[0]), Flags: wire.PrefetchAlone}
		ask.Chain.Space, ask.Chain.Skip = handle(spaces[0]), 1
		ask.Shared.Ranks = wire.ViewU32s([]uint32{handle(spaces[1])})
		var reply wire.PrefetchReply
		c.do(wire.OpPrefetch, &ask, &reply)
		if got := numbers(reply.Alone); !slices.Equal(got, []int{4, 6, 8, 9}) || reply.Match.Total.Chunks != 2 {
			t.Errorf("alone %v, matched %d", got, reply.Match.Total.Chunks)
		}
		ask.Shared.Groups = wire.Groups(nil).Add(wire.Group{Space: ask.Chain.Space})
		c.refused(wire.CodeBadRequest, wire.OpPrefetch, &ask)
	})
}
