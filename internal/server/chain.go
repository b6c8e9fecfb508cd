package server

import (
	"slices"

	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// chunkBytes is what a chunk of a request takes until it is answered: its hash and
// length, twice for lengths that came with it, and the table that finds a hash
// that is there twice, which has two to four slots a chunk.
const chunkBytes = 16 + 2*4 + 4*4

// chainBytes is what the chain of a request takes.
func chainBytes(ch *wire.Chain, chunkTokens uint32) int64 {
	n := int64(ch.Chunks())
	if ch.Form == wire.FormTokens {
		n = int64(ch.Tokens.Len())/int64(chunkTokens) + 1
	}
	return chunkBytes * min(n, key.MaxChunks)
}

// resolver turns what a request says of a prompt into chains: tokens or hashes, or a live
// job or fill, in the spaces that are named. It is the reader's alone.
type resolver struct {
	session *session // has the jobs and fills
	rights  *rights
	spent   *budget.Held // for the request at hand
	asked   [1]key.Chain // see scratch
	lengths []uint32     // see lengthsOf
}

// bytes is the memory that it keeps between requests: hashes, and lengths twice.
func (r *resolver) bytes() int64 {
	return (16+4)*int64(cap(r.asked[0].Hashes)) + 4*int64(cap(r.lengths))
}

// chain builds the chain of a request into dst, which then shares nothing
// with the frame. The session has the right that the operation takes in the
// chain's space, or there is an error.
func (r *resolver) chain(dst *key.Chain, ch *wire.Chain) error {
	switch ch.Form {
	case wire.FormRef:
		return r.chainOf(dst, ch)
	case wire.FormKept:
		return refuse(wire.CodeUnknownChain, "chains are not kept: send it")
	case wire.FormNone:
		return refuse(wire.CodeBadRequest, "this takes a chain of chunks, not a space only")
	}
	sp, err := r.rights.space(ch.Space)
	if err != nil {
		return err
	}
	if err := r.spent.Add(chainBytes(ch, sp.info.ChunkTokens)); err != nil {
		return err
	}
	o := key.Options{SaveUnfull: ch.SaveUnfull || r.session.server.settings().SaveUnfull, Alone: ch.Alone}
	if ch.Form == wire.FormTokens {
		err = sp.builder.TokenBytes(dst, ch.Tokens, o)
	} else {
		err = sp.builder.Hashes(dst, int(ch.Width), ch.Hashes, r.lengthsOf(ch, sp.info.ChunkTokens), o)
	}
	if err != nil {
		return refuse(wire.CodeBadRequest, "chain: %v", err)
	}
	return skip(dst, ch.Skip)
}

// lengthsOf is the tokens of each chunk of a chain of hashes, until the next call.
func (r *resolver) lengthsOf(ch *wire.Chain, chunkTokens uint32) []uint32 {
	n := ch.Chunks()
	r.lengths = slices.Grow(r.lengths[:0], n)[:n]
	for i := range r.lengths {
		r.lengths[i] = chunkTokens
	}
	if ch.LastTokens != 0 && n > 0 {
		r.lengths[n-1] = ch.LastTokens
	}
	return r.lengths
}

// chainOf is the chain of a live job or fill; its slices are shared and
// never changed.
func (r *resolver) chainOf(dst *key.Chain, ch *wire.Chain) error {
	j, f := r.session.held(ch.ID)
	switch {
	case j != nil:
		*dst = *j.prompt.chain()
	case f != nil:
		*dst = f.chain
	default:
		return refuse(wire.CodeUnknownJob, "chain: %d is no live job or fill of this connection", ch.ID)
	}
	if err := r.rights.may(dst.Space); err != nil {
		return err
	}
	return skip(dst, ch.Skip)
}

func skip(dst *key.Chain, n uint32) error {
	if int64(dst.Skip)+int64(n) > int64(dst.Len()) {
		return refuse(wire.CodeBadRequest, "chain: %d chunks are skipped of %d", n, dst.Len()-dst.Skip)
	}
	dst.Skip += int(n)
	return nil
}

// span turns chunk numbers of a request, which start after the skipped
// chunks, into a range of the chain; a count of 0 is everything that follows.
func span(ch *key.Chain, first, count uint32) (from, to int, err error) {
	left := int64(ch.Len() - ch.Skip)
	if int64(first) > left || int64(first)+int64(count) > left {
		return 0, 0, refuse(wire.CodeBadRequest, "chunks %d and %d more are asked for of a chain of %d", first, count, left)
	}
	from = ch.Skip + int(first)
	if count == 0 {
		return from, ch.Len(), nil
	}
	return from, from + int(count), nil
}

// ranked returns a chain, alone in a list, in its own space and in those of the ranks
// that are named besides.
func (r *resolver) ranked(chains []key.Chain, ranks wire.U32s) ([]key.Chain, error) {
	if ranks.Len() == 0 {
		return chains, nil
	}
	chain := &chains[0]
	if n := int64(chain.Len()) * int64(1+ranks.Len()); n > key.MaxChunks {
		return nil, tooLarge(key.MaxChunks, "ranks: %d chunks in %d spaces; use at most %d in all", chain.Len(), 1+ranks.Len(), key.MaxChunks)
	}
	own := r.rights.spaces.of(chain.Space)
	seen := map[key.SpaceID]bool{chain.Space: true}
	for i := range ranks.Len() {
		sp, err := r.rights.space(ranks.At(i))
		switch {
		case err != nil:
			return nil, err
		case own == nil || !own.builder.SameChains(sp.builder):
			return nil, refuse(wire.CodeBadRequest, "ranks: a prompt has other hashes in space %d; method, chunk tokens and salt must be equal", ranks.At(i))
		case seen[sp.info.ID]:
			return nil, refuse(wire.CodeBadRequest, "ranks: space %d is named twice", ranks.At(i))
		}
		seen[sp.info.ID] = true
		rank := *chain
		rank.Space = sp.info.ID
		chains = append(chains, rank)
	}
	return chains, nil
}

// maxScratch is how many chunks a connection keeps room for between lookups:
// a prompt of four million tokens in chunks of 256.
const maxScratch = 16 << 10

// scratch is room for the chain of a request that keeps nothing of it: it is
// good until the next call. A reference shares a job's slices, which
// must not be written over.
func (r *resolver) scratch(ch *wire.Chain) []key.Chain {
	if cap(r.asked[0].Hashes) > maxScratch {
		r.asked[0] = key.Chain{}
	}
	if ch.Form == wire.FormRef {
		return make([]key.Chain, 1)
	}
	return r.asked[:]
}

// familyOf is the prompt of a request in all spaces of a hybrid model that it names.
// asked is the record that chain was made of, whose tokens may be needed again.
func (r *resolver) familyOf(chain *key.Chain, asked *wire.Chain, o *wire.Shared) (*store.Family, error) {
	handles, err := familyHandles(o)
	if err != nil {
		return nil, err
	}
	f := &store.Family{Groups: make(index.Family, o.Groups.Len()), Chains: make([][]key.Chain, o.Groups.Len())}
	b := familyBuilder{resolver: r, family: f, chain: chain, asked: asked, grain: o.Grain, seen: make(map[key.SpaceID]bool)}
	for g := range f.Groups {
		for _, handle := range handles[g] {
			if err := b.add(g, o.Groups.At(g), handle); err != nil {
				return nil, err
			}
		}
	}
	if f.Groups[0].Kind != index.Full && !f.Groups.OnlyStates() {
		return nil, refuse(wire.CodeBadRequest, "groups: the first, of the space of the chain, is a %v; put a full one there", f.Groups[0].Kind)
	}
	if err := f.Groups.Check(); err != nil {
		return nil, refuse(wire.CodeBadRequest, "groups: %v", err)
	}
	return f, r.roomForFamily(f)
}

// familyBuilder adds spaces to a family, one after the other.
type familyBuilder struct {
	resolver *resolver
	family   *store.Family
	chain    *key.Chain
	asked    *wire.Chain
	grain    uint32
	seen     map[key.SpaceID]bool
	first    *key.Builder // of the space of the chain
}

// add adds the space of one more rank to group g.
func (b *familyBuilder) add(g int, group wire.Group, handle uint32) error {
	sp, err := b.resolver.rights.space(handle)
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
	f.Groups[g] = index.Group{Kind: index.Kind(group.Kind), Tokens: int(group.Tokens), Chunk: int(sp.info.ChunkTokens)}
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
// were computed here, those of the same tokens. Chains of one chunk length share their slices.
func (b *familyBuilder) addChain(g int, sp *openSpace) error {
	f, out := b.family, *b.chain
	group, own, first := f.Groups[g], f.Groups[0].Chunk, f.Chains[alike(f.Groups, g)]
	switch {
	case len(first) > 0:
		out = first[0]
	case g == 0:
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
	out.Alone = b.chain.Alone || group.Kind != index.Full
	f.Chains[g] = append(f.Chains[g], out)
	return nil
}

// alike is the first group whose chunks are as long as those of group g.
func alike(groups index.Family, g int) int {
	return slices.IndexFunc(groups, func(o index.Group) bool { return o.Chunk == groups[g].Chunk })
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
func (r *resolver) roomForFamily(f *store.Family) error {
	pieces, bytes := int64(0), int64(0)
	for g, chains := range f.Chains {
		n := int64(chains[0].Len())
		if pieces += n * int64(len(chains)); g > 0 && alike(f.Groups, g) == g {
			bytes += chunkBytes * n
		}
	}
	if pieces > key.MaxChunks {
		return tooLarge(key.MaxChunks, "groups: %d chunks in all spaces; use at most %d in all", pieces, key.MaxChunks)
	}
	return r.spent.Add(bytes)
}

// promptOf is chain for a request that may name groups. With a grain its hashes are those
// of so many tokens each, and the chunks of dst have the hashes at their ends.
func (r *resolver) promptOf(dst *key.Chain, ch *wire.Chain, o *wire.Shared) error {
	switch {
	case o.Lengths > 0 && o.Groups.Len() == 0:
		return refuse(wire.CodeBadRequest, "lengths: without groups every length is usable; send both or none")
	case o.Grain == 0:
		return r.chain(dst, ch)
	case o.Groups.Len() == 0:
		return refuse(wire.CodeBadRequest, "grain: without groups each hash is that of a chunk; send both or none")
	case ch.Form != wire.FormHashes || ch.ID != 0 || ch.LastTokens != 0:
		return refuse(wire.CodeBadRequest, "grain: it is of hashes that come with the request, all of full chunks, and are not to be kept")
	}
	sp, err := r.rights.space(ch.Space)
	if err != nil {
		return err
	}
	own, err := r.atEnds(ch, o.Grain, sp.info.ChunkTokens)
	if err != nil {
		return err
	}
	return r.chain(dst, &own)
}

// atEnds is a record of hashes of grain tokens each with those at the ends of chunks only.
// Its skip stays: it counts chunks of the first group.
func (r *resolver) atEnds(ch *wire.Chain, grain, chunk uint32) (wire.Chain, error) {
	own := *ch
	if chunk%grain != 0 {
		return own, refuse(wire.CodeBadRequest, "grain: a hash for each %d tokens, and chunks of %d; it must divide the chunks of all groups", grain, chunk)
	}
	by, width := int(chunk/grain), int(ch.Width)
	if by == 1 {
		return own, nil
	}
	n := ch.Chunks() / by
	if err := r.spent.Add(int64(n * width)); err != nil {
		return own, err
	}
	own.Hashes = make([]byte, 0, n*width)
	for end := by; end <= ch.Chunks(); end += by {
		own.Hashes = append(own.Hashes, ch.Hashes[(end-1)*width:end*width]...)
	}
	return own, nil
}

// ofGrain makes out the chain of a group whose chunks have another length than those of
// the first.
func (b *familyBuilder) ofGrain(out *key.Chain, sp *openSpace) error {
	own, err := b.resolver.atEnds(b.asked, b.grain, sp.info.ChunkTokens)
	if err != nil {
		return err
	}
	*out = key.Chain{}
	lengths := b.resolver.lengthsOf(&own, sp.info.ChunkTokens)
	if err := sp.builder.Hashes(out, int(own.Width), own.Hashes, lengths, key.Options{}); err != nil {
		return refuse(wire.CodeBadRequest, "groups: %v", err)
	}
	return nil
}
