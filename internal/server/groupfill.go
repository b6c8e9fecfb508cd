package server

import (
	"context"
	"slices"

	"github.com/kvstored/kvstored/internal/index/hybrid"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// groupFill is the slots of a fill for several groups of a hybrid model: of all chunks
// that are offered, those of the first group first.
type groupFill struct {
	places []place // by slot
	held   int64   // bytes that it takes
}

// place is the chunk of a slot.
type place struct {
	chain *key.Chain
	chunk int
	full  bool // of a group that is full
	// unwanted says that no length that is worth having needs it; see stack.Wanted.
	unwanted bool
}

const placeBytes = 32

func (g *groupFill) bytes() int64 {
	if g == nil {
		return 0
	}
	return g.held
}

// at is the chunk of slot i.
func (f *fill) at(i int) (c *key.Chain, chunk int) {
	if f.groups == nil {
		return &f.chain, f.first + i
	}
	p := &f.groups.places[i]
	return p.chain, p.chunk
}

// runFrom is where the run of slot i ends, at most at slot to: slots with the chunks of one
// chain without a gap, all of them wanted or none.
func (f *fill) runFrom(i, to int) int {
	if f.groups == nil {
		return to
	}
	places := f.groups.places
	for i++; i < to; i++ {
		if p, q := &places[i-1], &places[i]; p.chain != q.chain || p.chunk+1 != q.chunk || p.unwanted != q.unwanted {
			break
		}
	}
	return i
}

// mayStore is an error unless the session may store in all spaces of a fill.
func (f *fill) mayStore(c *reader) error {
	for _, id := range f.spaces {
		if err := c.may(id); err != nil {
			return err
		}
	}
	return nil
}

// blindTo reports whether the session may not read a space of a fill.
func (f *fill) blindTo(c *reader) bool { return slices.ContainsFunc(f.spaces, c.blind) }

// sizes are the bytes of each slot. from..to are the chunks of the chain that are asked
// for; with groups those of each group that end in the tokens of these.
func (f *fill) sizes(c *reader, req *wire.ReserveRequest, from, to int) ([]uint32, error) {
	if req.Groups.Len() == 0 {
		return c.sizes(req.Sizes, to-from, c.largestSlot())
	}
	family, err := familyOf(c, &f.chain, &req.Chain, &wire.Shared{Groups: req.Groups, Grain: req.Grain})
	if err != nil {
		return nil, err
	}
	family.Skip = 0
	chains := make([]*key.Chain, len(family.Chains))
	for g := range chains {
		own := family.Chains[g][0]
		chains[g], family.Chains[g][0].Skip = &own, 0
	}
	chains[0], f.spaces = &f.chain, nil
	for _, chain := range chains {
		f.spaces = append(f.spaces, chain.Space)
	}
	at, err := reachedBy(c, &f.chain, family)
	if err != nil {
		return nil, err
	}
	wanted := c.server.o.Stack.Wanted(family, at)
	f.groups = new(groupFill)
	return f.groups.fill(c, req, family, chains, wanted, from, to)
}

// reachedBy is how far a prompt reached when the connection asked for it, or first stored a
// part of it: the parts that it has stored since do not move the junction.
func reachedBy(c *reader, chain *key.Chain, f *stack.Family) (stack.Reached, error) {
	if chain.Len() == 0 {
		return stack.Reached{}, nil
	}
	n := c.prompts.take(chain)
	if n.reached == nil {
		at, err := c.server.o.Stack.Reached(c.ctx, f)
		if err != nil {
			return at, err
		}
		n.reached = &at
	}
	return *n.reached, nil
}

// fill makes a place for each chunk that is offered, and returns its bytes.
func (g *groupFill) fill(c *reader, req *wire.ReserveRequest, family *stack.Family, chains []*key.Chain, wanted [][]bool, from, to int) ([]uint32, error) {
	spans, all := make([][2]int, len(chains)), 0
	for i, chain := range chains {
		chunk, first := family.Groups[i].Chunk, family.Groups[0].Chunk
		spans[i] = [2]int{from * first / chunk, min(to*first/chunk, chain.Len())}
		all += max(0, spans[i][1]-spans[i][0])
	}
	if n := req.Sizes.Len(); n != len(chains) && n != all {
		return nil, refuse(wire.CodeBadRequest, "%d sizes for %d chunks of %d groups; give one for each group, or one for each chunk of the first group, then of the next", n, all, len(chains))
	}
	var sizes []uint32
	limit, k := c.largestSlot(), 0
	for i, chain := range chains {
		for chunk := spans[i][0]; chunk < spans[i][1]; chunk++ {
			size := req.Sizes.At(i)
			if req.Sizes.Len() == all {
				size = req.Sizes.At(k)
			}
			if k++; size == 0 {
				continue
			}
			if int64(size) > limit {
				return nil, tooLarge(limit, "chunk %d of group %d has %d bytes, the limit is %d", chunk, i, size, limit)
			}
			if sizes = append(sizes, size); i == 0 {
				c.payload = size
			}
			g.places = append(g.places, place{chain, chunk, family.Groups[i].Kind == hybrid.Full, wanted[i] != nil && !wanted[i][chunk]})
		}
		if family.Groups[i].Chunk != family.Groups[0].Chunk {
			g.held += chunkBytes * int64(chain.Len())
		}
	}
	if len(sizes) == 0 {
		return nil, refuse(wire.CodeBadRequest, "none of the %d chunks of %d groups is offered: all have 0 bytes", all, len(chains))
	}
	g.held += placeBytes * int64(len(g.places))
	return sizes, nil
}

// ask takes room for the longest leading run of slots that fits. It waits while nothing
// is granted only, and a try ends with tier.ErrMustWait then only.
func (f *fill) ask(ctx context.Context, want stack.Store, sizes []uint32, grants []stack.Grant) (n int, err error) {
	store := f.session.server.o.Stack
	if f.groups == nil {
		return store.Reserve(ctx, want, &f.chain, f.first, sizes, grants)
	}
	said := want.Force
	want.Patient = want.Wait // also once something is granted
	for n < len(sizes) {
		p, end := f.groups.places[n], f.runFrom(n, len(sizes))
		if p.unwanted {
			for ; n < end; n++ {
				grants[n].Status = stack.Unwanted
			}
			continue
		}
		want.Force = said || !p.full // the lengths that need it have decided
		got, err := store.Reserve(ctx, want, p.chain, p.chunk, sizes[n:end], grants[n:end])
		for _, g := range grants[n : n+got] {
			want.Wait = want.Wait && g.Status != stack.Granted
		}
		if n += got; err != nil || n < end {
			return n, err
		}
	}
	return n, nil
}
