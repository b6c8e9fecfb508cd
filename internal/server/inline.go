package server

import (
	"context"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// put stores payloads that came with the request.
func (c *session) put(h wire.Header, body []byte) error {
	var req wire.PutRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	var chain key.Chain
	if err := c.chain(&chain, &req.Chain); err != nil {
		return err
	}
	n := req.Sizes.Len()
	if n == 0 {
		return refuse(wire.StatusBadRequest, "put: no chunks")
	}
	from, to, err := span(&chain, req.First, uint32(n))
	if err != nil {
		return err
	}
	sizes, err := c.sizes(req.Sizes, to-from)
	if err != nil {
		return err
	}
	results := make(wire.Results, 0, 16*n)
	for i, size := range sizes {
		payload := req.Payloads[:size]
		req.Payloads = req.Payloads[size:]
		stored, err := c.putOne(&chain, from+i, payload)
		if err != nil {
			return err
		}
		results = results.Add(stored)
	}
	c.reply(h, &wire.StoreReply{Results: results})
	return nil
}

func (c *session) putOne(chain *key.Chain, i int, payload []byte) (wire.Stored, error) {
	var grants [1]tier.Grant
	stack := c.server.o.Stack
	_, err := stack.Reserve(c.ctx, c.owner, chain, i, []uint32{uint32(len(payload))}, grants[:], false)
	switch statusOf(err) {
	case wire.StatusOverBudget:
		return wire.Stored{Result: wire.ResultOverBudget}, nil
	case wire.StatusNoSpace:
		return wire.Stored{Result: wire.ResultNoSpace}, nil
	}
	if err != nil {
		return wire.Stored{}, err
	}
	switch grants[0].Status {
	case tier.Pending:
		return wire.Stored{Result: wire.ResultPending}, nil
	case tier.Exists:
		return c.compare(chain, i, payload), nil
	}
	ref := grants[0].Ref
	sum := ref.Block.Write(payload)
	ref.Block.SealSum(sum)
	if err := stack.Commit(chain, i, []tier.Ref{ref}); err != nil {
		return wire.Stored{}, err
	}
	c.server.count.stored(1, uint64(len(payload)))
	return wire.Stored{Result: wire.ResultStored, Sum: sum}, nil
}

// compare says whether a chunk that was there already has the same bytes, as
// far as that can be told without I/O.
func (c *session) compare(chain *key.Chain, i int, payload []byte) wire.Stored {
	var refs [1]tier.Ref
	stack := c.server.o.Stack
	if n, _ := stack.Hold(c.owner, ledger.IO, chain, i, i+1, refs[:]); n == 0 {
		return wire.Stored{Result: wire.ResultExists}
	}
	sum := refs[0].Block.Sum()
	stack.Release(c.owner, ledger.IO, refs[:])
	if sum != arena.Checksum(payload) {
		c.server.count.differs.Add(1)
		return wire.Stored{Result: wire.ResultDiffers, Sum: sum}
	}
	return wire.Stored{Result: wire.ResultExists, Sum: sum}
}

// get answers payloads inline: at once if they are in DRAM, later if they
// must come up.
func (c *session) get(h wire.Header, body []byte) error {
	var req wire.GetRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	var chain key.Chain
	if err := c.chain(&chain, &req.Chain); err != nil {
		return err
	}
	from, to, err := span(&chain, req.First, 0)
	if err != nil {
		return err
	}
	if req.MaxChunks > 0 {
		to = min(to, from+int(req.MaxChunks))
	}
	chain.Skip = from
	m, err := c.server.o.Stack.Match(c.ctx, &chain, tier.All)
	if err != nil {
		return err
	}
	g := get{session: c, chain: &chain, limit: req.MaxBytes}
	if g.limit == 0 || g.limit > wire.MaxPayloadBytes {
		g.limit = wire.MaxPayloadBytes
	}
	to = min(to, from+m.Chunks)
	if hot := min(to, from+m.Hot); hot == to || g.fits(from, hot) {
		// What is evicted this very moment ends the run: the reader must not
		// wait for it to come up.
		g.gather(c.ctx, from, to, tier.Of(tier.CPU))
		c.reply(h, &g.reply)
		return nil
	}
	deadline := time.Duration(req.DeadlineMillis) * time.Millisecond
	if deadline == 0 {
		deadline = c.server.o.Prefetch.Deadline
	}
	return c.later(h, func(ctx context.Context) (wire.Message, error) {
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		if err := c.inline.Acquire(ctx, int64(g.limit)); err != nil {
			return &g.reply, nil // too late: nothing is ready
		}
		defer c.inline.Release(int64(g.limit))
		g.gather(ctx, from, to, tier.All)
		c.awaitRoom(ctx)
		return &g.reply, nil
	})
}

// get is one inline get. Those that wait are bounded by session.inline: their
// payloads are copies.
type get struct {
	session *session
	chain   *key.Chain
	limit   uint32
	reply   wire.GetReply
}

// gather takes chunks from..to into the reply, as far as the limit and the
// context go.
func (g *get) gather(ctx context.Context, from, to int, search tier.Set) {
	stack, owner := g.session.server.o.Stack, g.session.owner
	for i := from; i < to; i++ {
		ref, place, err := stack.Load(ctx, owner, g.chain, i, search)
		if err != nil {
			break // a shorter prefix
		}
		fits := g.add(ref, g.chain.Tokens[i], i == from)
		stack.Release(owner, ledger.Lease, []tier.Ref{ref})
		if !fits {
			break
		}
		g.session.server.count.got(place, g.chain.Tokens[i])
	}
	stack.Touch(g.chain, from, from+g.reply.Chunks.Len())
}

func (g *get) add(r tier.Ref, tokens uint32, first bool) bool {
	b := r.Block
	if !first && len(g.reply.Payloads)+b.Len() > int(g.limit) {
		return false
	}
	g.reply.Chunks = g.reply.Chunks.Add(wire.Chunk{Length: uint32(b.Len()), Tokens: tokens, Sum: b.Sum()})
	g.reply.Payloads = append(g.reply.Payloads, b.Bytes()...)
	return true
}

// fits reports whether the limit ends the answer before chunk to, so that
// nothing has to come up.
func (g *get) fits(from, to int) bool {
	refs := make([]tier.Ref, to-from)
	stack, owner := g.session.server.o.Stack, g.session.owner
	n, _ := stack.Hold(owner, ledger.IO, g.chain, from, to, refs)
	total := 0
	for _, r := range refs[:n] {
		total += r.Block.Len()
	}
	stack.Release(owner, ledger.IO, refs[:n])
	return n > 0 && total > int(g.limit)
}
