package server

import (
	"cmp"
	"context"
	"slices"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// run is slots of a fill, one after the other, that have chunks of one chain without a gap.
type run struct {
	chain *key.Chain
	chunk int  // of the first slot
	slot  int  // the first one
	n     int  // slots
	full  bool // of a group that is full
	// unwanted says that no length that is worth having needs them; see stack.Wanted.
	unwanted bool
}

const runBytes = 40

// runAt is the rest of the run that slot i is in, at most up to slot to.
func (f *fill) runAt(i, to int) run {
	at, _ := slices.BinarySearchFunc(f.runs, i, func(r run, i int) int { return cmp.Compare(r.slot+r.n, i+1) })
	r := f.runs[at]
	r.chunk, r.slot, r.n = r.chunk+i-r.slot, i, min(r.slot+r.n, to)-i
	return r
}

// add adds the slot of a chunk, of which the run r tells the rest.
func (f *fill) add(r run) {
	if n := len(f.runs); n > 0 {
		last := &f.runs[n-1]
		if r.slot = last.slot + last.n; r.chain == last.chain && r.chunk == last.chunk+last.n && r.unwanted == last.unwanted {
			last.n++
			return
		}
	}
	f.runs = append(f.runs, r)
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

// layOut makes the runs of a fill, and returns the bytes of each slot. from..to are the
// chunks of the chain that are asked for; with groups those of each group that end in the
// tokens of these, those of the first group first.
func (f *fill) layOut(c *reader, req *wire.ReserveRequest, from, to int) ([]uint32, error) {
	f.cost = liveBytes + liveChunkBytes*int64(f.chain.Len())
	if req.Groups.Len() == 0 {
		f.runs = []run{{chain: &f.chain, chunk: from, n: to - from, full: true}}
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
	return f.layOutGroups(c, req, family, chains, wanted, from, to)
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

// layOutGroups makes a slot for each chunk that is offered, and returns its bytes.
func (f *fill) layOutGroups(c *reader, req *wire.ReserveRequest, family *stack.Family, chains []*key.Chain, wanted [][]bool, from, to int) ([]uint32, error) {
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
			f.add(run{chain: chain, chunk: chunk, n: 1, full: family.Groups[i].Kind == index.Full, unwanted: wanted[i] != nil && !wanted[i][chunk]})
		}
		if family.Groups[i].Chunk != family.Groups[0].Chunk {
			f.cost += chunkBytes * int64(chain.Len())
		}
	}
	if len(sizes) == 0 {
		return nil, refuse(wire.CodeBadRequest, "none of the %d chunks of %d groups is offered: all have 0 bytes", all, len(chains))
	}
	f.cost += runBytes * int64(len(f.runs))
	return sizes, nil
}

// ask takes room for the longest leading run of slots that fits. It waits while nothing
// is granted only, and a try ends with tier.ErrMustWait then only.
func (f *fill) ask(ctx context.Context, want stack.Store, sizes []uint32, grants []stack.Grant) (n int, err error) {
	said := want.Force
	want.Patient = want.Wait // also once something is granted
	for n < len(sizes) {
		r := f.runAt(n, len(sizes))
		end := n + r.n
		if r.unwanted {
			for ; n < end; n++ {
				grants[n].Status = stack.Unwanted
			}
			continue
		}
		want.Force = said || !r.full // the lengths that need it have decided
		got, err := f.session.server.o.Stack.Reserve(ctx, want, r.chain, r.chunk, sizes[n:end], grants[n:end])
		for _, g := range grants[n : n+got] {
			want.Wait = want.Wait && g.Status != stack.Granted
		}
		if n += got; err != nil || n < end {
			return n, err
		}
	}
	return n, nil
}
