package server

import (
	"github.com/kvstored/kvstored/internal/hint"
	"github.com/kvstored/kvstored/internal/hybrid"
	"github.com/kvstored/kvstored/internal/missing"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// familyOf is the prompt of a request in all spaces of a hybrid model that it names.
// asked is the record that chain was made of, whose tokens may be needed again.
func familyOf(c *reader, chain *key.Chain, asked *wire.Chain, o *wire.Shared) (*stack.Family, error) {
	handles, err := familyHandles(o)
	if err != nil {
		return nil, err
	}
	f := &stack.Family{Groups: make(hybrid.Family, o.Groups.Len()), Chains: make([][]key.Chain, o.Groups.Len())}
	b := familyBuilder{reader: c, family: f, chain: chain, asked: asked, grain: o.Grain, seen: make(map[key.SpaceID]bool)}
	for g := range f.Groups {
		for _, handle := range handles[g] {
			if err := b.add(g, o.Groups.At(g), handle); err != nil {
				return nil, err
			}
		}
	}
	if f.Groups[0].Kind != hybrid.Full && !f.Groups.OnlyStates() {
		return nil, refuse(wire.CodeBadRequest, "groups: the first, of the space of the chain, is a %v; put a full one there", f.Groups[0].Kind)
	}
	if err := f.Groups.Check(); err != nil {
		return nil, refuse(wire.CodeBadRequest, "groups: %v", err)
	}
	return f, roomForFamily(c, f)
}

// familyBuilder adds spaces to a family, one after the other.
type familyBuilder struct {
	*reader
	family *stack.Family
	chain  *key.Chain
	asked  *wire.Chain
	grain  uint32
	seen   map[key.SpaceID]bool
	first  *key.Builder // of the space of the chain
}

// add adds the space of one more rank to group g.
func (b *familyBuilder) add(g int, group wire.Group, handle uint32) error {
	sp, err := b.space(handle)
	f := b.family
	switch {
	case err != nil:
		return err
	case b.seen[sp.info.ID]:
		return refuse(wire.CodeBadRequest, "groups: space %d is named twice", handle)
	case b.first == nil && sp.info.ID != b.chain.Space:
		return refuse(wire.CodeBadRequest, "groups: the first is in space %d, and not in that of the chain", handle)
	case b.first != nil && !b.first.SamePrompt(sp.builder):
		return refuse(wire.CodeBadRequest, "groups: a prompt has other hashes in space %d; method and salt must be equal", handle)
	case len(f.Chains[g]) > 0 && int(sp.info.ChunkTokens) != f.Groups[g].Chunk:
		return refuse(wire.CodeBadRequest, "ranks: space %d has chunks of %d tokens, group %d of %d", handle, sp.info.ChunkTokens, g, f.Groups[g].Chunk)
	}
	if b.seen[sp.info.ID] = true; b.first == nil {
		b.first, f.Skip = sp.builder, b.chain.Skip*int(sp.info.ChunkTokens)
	}
	f.Groups[g] = hybrid.Group{Kind: hybrid.Kind(group.Kind), Tokens: int(group.Tokens), Chunk: int(sp.info.ChunkTokens)}
	return b.addChain(g, &sp)
}

// familyHandles are the spaces of each group: its own and those of the other ranks.
func familyHandles(o *wire.Shared) ([][]uint32, error) {
	groups := o.Groups.Len()
	if o.Ranks.Len()%groups != 0 {
		return nil, refuse(wire.CodeBadRequest, "%d ranks for %d groups; name the spaces of all groups for each further rank", o.Ranks.Len(), groups)
	}
	handles := make([][]uint32, groups)
	for g := range handles {
		handles[g] = append(handles[g], o.Groups.At(g).Space)
		for i := g; i < o.Ranks.Len(); i += groups {
			handles[g] = append(handles[g], o.Ranks.At(i))
		}
	}
	return handles, nil
}

// addChain adds the chain in a space of group g. Its hashes are those of the request's;
// where its chunks have more tokens, each that ends one of its own; where they
// were computed here, those of the same tokens.
func (b *familyBuilder) addChain(g int, sp *openSpace) error {
	f, out := b.family, *b.chain
	group, own := f.Groups[g], f.Groups[0].Chunk
	switch {
	case len(f.Chains[g]) > 0:
		out = f.Chains[g][0]
	case group.Chunk == own:
	case b.asked.Form == wire.FormTokens:
		out = key.Chain{}
		if err := sp.builder.TokenBytes(&out, b.asked.Tokens, key.Options{}); err != nil {
			return refuse(wire.CodeBadRequest, "groups: %v", err)
		}
	case sp.builder.Computes():
		return refuse(wire.CodeBadRequest, "groups: space %d has chunks of %d tokens, that of the chain of %d; send the tokens of the prompt, whose hashes the daemon computes", sp.info.Handle, group.Chunk, own)
	case b.grain > 0:
		if err := b.ofGrain(&out, sp); err != nil {
			return err
		}
	case !b.chain.Chained && group.Chunk%own == 0:
		out = coarser(b.chain, group.Chunk/own, group.Chunk)
	default:
		return refuse(wire.CodeBadRequest, "groups: space %d has chunks of %d tokens, that of the chain of %d; send the tokens of the prompt, or hashes with a grain", sp.info.Handle, group.Chunk, own)
	}
	out.Space, out.Skip = sp.info.ID, f.Skip/group.Chunk
	out.Alone = b.chain.Alone || group.Kind != hybrid.Full
	f.Chains[g] = append(f.Chains[g], out)
	return nil
}

// coarser is a chain whose chunks join several of c, with the hash of the last.
func coarser(c *key.Chain, by, tokens int) key.Chain {
	var out key.Chain
	for i := by - 1; i < c.Len(); i += by {
		out.Hashes, out.Tokens = append(out.Hashes, c.Hashes[i]), append(out.Tokens, uint32(tokens))
	}
	return out
}

// roomForFamily spends the memory of the chains.
func roomForFamily(c *reader, f *stack.Family) error {
	pieces, bytes := int64(0), int64(0)
	for g, chains := range f.Chains {
		n := int64(chains[0].Len())
		if pieces += n * int64(len(chains)); f.Groups[g].Chunk != f.Groups[0].Chunk {
			bytes += chunkBytes * n
		}
	}
	if pieces > key.MaxChunks {
		return tooLarge(key.MaxChunks, "groups: %d chunks in all spaces; use at most %d in all", pieces, key.MaxChunks)
	}
	return c.spend(bytes)
}

func lookupFamily(c *reader, h wire.Header, chain *key.Chain, req *wire.LookupRequest) error {
	f, err := familyOf(c, chain, &req.Chain, &req.Shared)
	if err != nil {
		return err
	}
	m, err := c.server.o.Stack.MatchFamily(c.ctx, f, searchSet(req.Search), chain.Len()*f.Groups[0].Chunk, nil)
	if err != nil {
		return err
	}
	if req.Chain.Form != wire.FormRef {
		first := chain.Len() > 0 && !c.prompts.take(chain).looked
		c.prompts.observeAll(fullChains(f), true, hint.Advice{})
		if first {
			c.server.o.Stack.ObserveFamily(f, &m, 0)
		}
		noteReached(c, chain, searchSet(req.Search), &m)
	}
	grouped, err := groupedOf(c, f, searchSet(req.Search), &m, &req.Shared)
	if err != nil {
		return err
	}
	full := group{stack: c.server.o.Stack, search: searchSet(req.Search), chains: fullChains(f)}
	why := func() missing.Absence { return full.whyFamily(f, &m) }
	reply := wire.LookupReply{Match: familyMatchOf(f, &m), Worth: worthFamily(c, f, &m), Grouped: grouped}
	reply.Missing = absent(c, &req.Shared, &full.chains[0], m.Run/f.Groups[0].Chunk, why)
	c.reply(h, &reply)
	found := stack.Match{Count: stack.Count{Chunks: int(reply.Match.Total.Chunks), Tokens: reply.Match.Total.Tokens}}
	for p, n := range reply.Match.Tiers {
		found.In[p] = stack.Count{Chunks: int(n.Chunks), Tokens: n.Tokens}
	}
	noteLookup(c, chain, &found, why)
	return nil
}

// noteReached notes how far a prompt reaches that is asked for in all tiers.
func noteReached(c *reader, chain *key.Chain, search tier.Set, m *stack.FamilyMatch) {
	if chain.Len() > 0 && search == tier.All {
		c.prompts.take(chain).reached = &stack.Reached{Usable: m.Tokens, Run: m.Run}
	}
}

// familyMatchOf is what the usable prefix is to a client that counts chunks of the
// first group: where they are.
func familyMatchOf(f *stack.Family, m *stack.FamilyMatch) (out wire.Match) {
	each := tokensEach(f, m)
	count := func(n int) wire.Count { return wire.Count{Chunks: uint32(n), Tokens: uint64(n * each)} }
	out.Total = count(m.Needs[0].To - m.Needs[0].From)
	for p := range out.Tiers {
		out.Tiers[p] = count(m.Needs[0].In[p])
	}
	return out
}

// tokensEach is for how many tokens of the usable prefix each chunk of the first group
// stands: its own, but that the state of a model without full groups stands for all.
func tokensEach(f *stack.Family, m *stack.FamilyMatch) int {
	return (m.Tokens - f.Skip) / max(1, m.Needs[0].To-m.Needs[0].From)
}

func groupedOf(c *reader, f *stack.Family, search tier.Set, m *stack.FamilyMatch, o *wire.Shared) (*wire.Grouped, error) {
	out := &wire.Grouped{Tokens: uint64(m.Tokens), Run: uint64(m.Run), Lacks: m.Lacks, Needs: needsOf(m, o.Groups)}
	if o.Lengths > 0 {
		found, err := c.server.o.Stack.Lengths(c.ctx, f, search, m, int(o.Lengths))
		if err != nil {
			return nil, err
		}
		lengths := make([]uint32, len(found))
		for i, n := range found {
			lengths[i] = uint32(n)
		}
		out.Lengths = wire.ViewU32s(lengths)
	}
	return out, nil
}

func needsOf(m *stack.FamilyMatch, groups wire.Groups) (out wire.Needs) {
	for g := range m.Needs {
		n := &m.Needs[g]
		need := wire.Need{Space: groups.At(g).Space, First: uint32(n.From), Chunks: uint32(n.To - n.From)}
		for p := range need.Tiers {
			need.Tiers[p] = uint32(n.In[p])
		}
		out = out.Add(need)
	}
	return out
}

// checkLengths refuses the option lengths without groups.
func checkLengths(o *wire.Shared) error {
	if o.Lengths > 0 && o.Groups.Len() == 0 {
		return refuse(wire.CodeBadRequest, "lengths: without groups every length is usable; send both or none")
	}
	return nil
}

// fullChains are the chains of the full groups, which the policies learn of; of a model
// that has none those of the first group.
func fullChains(f *stack.Family) (out []key.Chain) {
	if f.Groups.OnlyStates() {
		return f.Chains[0]
	}
	for g, chains := range f.Chains {
		if f.Groups[g].Kind == hybrid.Full {
			out = append(out, chains...)
		}
	}
	return out
}

// worthFamily is how many chunks of the first group are there or worth storing.
func worthFamily(c *reader, f *stack.Family, m *stack.FamilyMatch) uint32 {
	run := stack.Match{Count: stack.Count{Chunks: max(0, (m.Run-f.Skip)/f.Groups[0].Chunk)}}
	return c.worthAll(f.Chains[0], &run)
}
