package server

import (
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// chain builds the chain of a request into dst, which then shares nothing
// with the frame. The session has the right that the operation takes in the
// chain's space, or there is an error.
func (c *session) chain(dst *key.Chain, ch *wire.Chain) error {
	if ch.Form == wire.FormRef {
		return c.chainOf(dst, ch)
	}
	sp, err := c.space(ch.Space)
	if err != nil {
		return err
	}
	o := key.Options{SaveUnfull: ch.SaveUnfull || c.server.settings().SaveUnfull, Alone: ch.Alone, Pause: c.pause}
	if ch.Form == wire.FormTokens {
		err = sp.builder.TokenBytes(dst, ch.Tokens, o)
	} else {
		c.lengths = ch.Lengths.Append(c.lengths[:0])
		err = sp.builder.Hashes(dst, int(ch.Width), ch.Hashes, c.lengths, o)
	}
	if err != nil {
		return refuse(wire.StatusBadRequest, "chain: %v", err)
	}
	return skip(dst, ch.Skip)
}

// chainOf is the chain of a live job or fill; its slices are shared, nobody
// changes them.
func (c *session) chainOf(dst *key.Chain, ch *wire.Chain) error {
	c.mu.Lock()
	j, f := c.mu.jobs[ch.Ref], c.mu.fills[ch.Ref]
	c.mu.Unlock()
	switch {
	case j != nil:
		*dst = *j.chain
	case f != nil:
		*dst = f.chain
	default:
		return refuse(wire.StatusUnknownJob, "chain: %d is no live job or fill of this connection", ch.Ref)
	}
	if err := c.may(dst.Space); err != nil {
		return err
	}
	return skip(dst, ch.Skip)
}

func skip(dst *key.Chain, n uint32) error {
	if int64(dst.Skip)+int64(n) > int64(dst.Len()) {
		return refuse(wire.StatusBadRequest, "chain: %d chunks are skipped of %d", n, dst.Len()-dst.Skip)
	}
	dst.Skip += int(n)
	return nil
}

// span turns chunk numbers of a request, which start after the skipped
// chunks, into a range of the chain; a count of 0 is everything that follows.
func span(ch *key.Chain, first, count uint32) (from, to int, err error) {
	left := int64(ch.Len() - ch.Skip)
	if int64(first) > left || int64(first)+int64(count) > left {
		return 0, 0, refuse(wire.StatusBadRequest, "chunks %d and %d more are asked for of a chain of %d", first, count, left)
	}
	from = ch.Skip + int(first)
	if count == 0 {
		return from, ch.Len(), nil
	}
	return from, from + int(count), nil
}
