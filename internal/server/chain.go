package server

import (
	"slices"

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

// chain builds the chain of a request into dst, which then shares nothing
// with the frame. The session has the right that the operation takes in the
// chain's space, or there is an error.
func (c *reader) chain(dst *key.Chain, ch *wire.Chain) error {
	switch ch.Form {
	case wire.FormRef:
		return c.chainOf(dst, ch)
	case wire.FormKept:
		return refuse(wire.CodeUnknownChain, "chains are not kept: send it")
	case wire.FormNone:
		return refuse(wire.CodeBadRequest, "this takes a chain of chunks, not a space only")
	}
	sp, err := c.space(ch.Space)
	if err != nil {
		return err
	}
	if err := c.spend(chainBytes(ch, sp.info.ChunkTokens)); err != nil {
		return err
	}
	o := key.Options{SaveUnfull: ch.SaveUnfull || c.server.settings().SaveUnfull, Alone: ch.Alone}
	if ch.Form == wire.FormTokens {
		err = sp.builder.TokenBytes(dst, ch.Tokens, o)
	} else {
		c.fillLengths(ch, sp.info.ChunkTokens)
		err = sp.builder.Hashes(dst, int(ch.Width), ch.Hashes, c.lengths, o)
	}
	if err != nil {
		return refuse(wire.CodeBadRequest, "chain: %v", err)
	}
	return skip(dst, ch.Skip)
}

// fillLengths sets the tokens of each chunk of a chain of hashes.
func (c *reader) fillLengths(ch *wire.Chain, chunkTokens uint32) {
	n := ch.Chunks()
	c.lengths = slices.Grow(c.lengths[:0], n)[:n]
	for i := range c.lengths {
		c.lengths[i] = chunkTokens
	}
	if ch.LastTokens != 0 && n > 0 {
		c.lengths[n-1] = ch.LastTokens
	}
}

// chainOf is the chain of a live job or fill; its slices are shared and
// never changed.
func (c *reader) chainOf(dst *key.Chain, ch *wire.Chain) error {
	j, f := c.held(ch.ID)
	switch {
	case j != nil:
		*dst = *j.chain
	case f != nil:
		*dst = f.chain
	default:
		return refuse(wire.CodeUnknownJob, "chain: %d is no live job or fill of this connection", ch.ID)
	}
	if err := c.may(dst.Space); err != nil {
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
func (c *reader) ranked(chains []key.Chain, ranks wire.U32s) ([]key.Chain, error) {
	if ranks.Len() == 0 {
		return chains, nil
	}
	chain := &chains[0]
	if n := int64(chain.Len()) * int64(1+ranks.Len()); n > key.MaxChunks {
		return nil, tooLarge(key.MaxChunks, "ranks: %d chunks in %d spaces; use at most %d in all", chain.Len(), 1+ranks.Len(), key.MaxChunks)
	}
	own := c.spaces.of(chain.Space)
	seen := map[key.SpaceID]bool{chain.Space: true}
	for i := range ranks.Len() {
		sp, err := c.space(ranks.At(i))
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
func (c *reader) scratch(ch *wire.Chain) []key.Chain {
	if cap(c.asked[0].Hashes) > maxScratch {
		c.asked[0] = key.Chain{}
	}
	if ch.Form == wire.FormRef {
		return make([]key.Chain, 1)
	}
	return c.asked[:]
}

// sizes returns one size a chunk.
func (c *reader) sizes(l wire.U32s, n int, limit int64) ([]uint32, error) {
	if l.Len() != 1 && l.Len() != n {
		return nil, refuse(wire.CodeBadRequest, "%d sizes for %d chunks; give one for all, or one for each", l.Len(), n)
	}
	out := make([]uint32, n)
	for i := range out {
		if out[i] = l.At(min(i, l.Len()-1)); int64(out[i]) > limit {
			return nil, tooLarge(limit, "chunk %d has %d bytes, the limit is %d", i, out[i], limit)
		}
		c.payload = out[i]
	}
	return out, nil
}
