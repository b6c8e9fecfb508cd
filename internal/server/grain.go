package server

import (
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// promptOf is reader.chain for a request that may name groups. With a grain its hashes are those
// of so many tokens each, and the chunks of dst have the hashes at their ends.
func promptOf(c *reader, dst *key.Chain, ch *wire.Chain, o *wire.Shared) error {
	if o.Grain == 0 {
		return c.chain(dst, ch)
	}
	switch {
	case o.Groups.Len() == 0:
		return refuse(wire.CodeBadRequest, "grain: without groups each hash is that of a chunk; send both or none")
	case ch.Form != wire.FormHashes || ch.ID != 0 || ch.LastTokens != 0:
		return refuse(wire.CodeBadRequest, "grain: it is of hashes that come with the request, all of full chunks, and are not to be kept")
	}
	sp, err := c.space(ch.Space)
	if err != nil {
		return err
	}
	own, err := atEnds(c, ch, o.Grain, sp.info.ChunkTokens)
	if err != nil {
		return err
	}
	return c.chain(dst, &own)
}

// atEnds is a record of hashes of grain tokens each with those at the ends of chunks only.
// Its skip stays: it counts chunks of the first group.
func atEnds(c *reader, ch *wire.Chain, grain, chunk uint32) (wire.Chain, error) {
	own := *ch
	if chunk%grain != 0 {
		return own, refuse(wire.CodeBadRequest, "grain: a hash for each %d tokens, and chunks of %d; it must divide the chunks of all groups", grain, chunk)
	}
	by, width := int(chunk/grain), int(ch.Width)
	if by == 1 {
		return own, nil
	}
	n := ch.Chunks() / by
	if err := c.spend(int64(n * width)); err != nil {
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
	own, err := atEnds(b.reader, b.asked, b.grain, sp.info.ChunkTokens)
	if err != nil {
		return err
	}
	b.fillLengths(&own, sp.info.ChunkTokens)
	*out = key.Chain{}
	if err := sp.builder.Hashes(out, int(own.Width), own.Hashes, b.lengths, key.Options{}); err != nil {
		return refuse(wire.CodeBadRequest, "groups: %v", err)
	}
	return nil
}
