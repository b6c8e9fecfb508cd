package server

import (
	"errors"

	"github.com/kvstored/kvstored/internal/arena"
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
		return refuse(wire.StatusBadRequest, "no chunks are given")
	}
	from, to, err := span(&chain, req.First, uint32(n))
	if err != nil {
		return err
	}
	sizes, err := c.sizes(req.Sizes, to-from)
	if err != nil {
		return err
	}
	said, blind := c.said(&chain), c.blind(chain.Space)
	results := make(wire.Results, 0, 16*n)
	for i, size := range sizes {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		c.turn.Yield()
		payload := req.Payloads[:size]
		req.Payloads = req.Payloads[size:]
		stored, err := c.putOne(&chain, from+i, payload, said.insists, blind)
		unworthy := errors.Is(err, tier.ErrUnworthy)
		if err != nil && !unworthy {
			return err
		}
		results = results.Add(stored)
		if unworthy || stored.Result == wire.ResultOverQuota { // what follows would push out what leads to it
			for range sizes[i+1:] {
				results = results.Add(stored)
			}
			break
		}
	}
	if said.done {
		c.server.o.Stack.Cool(&chain)
	} else {
		c.server.extended(&chain)
	}
	c.reply(h, &wire.StoreReply{Results: results})
	return nil
}

// putOne stores one chunk. With tier.ErrUnworthy there is a result as well.
func (c *session) putOne(chain *key.Chain, i int, payload []byte, insists, blind bool) (wire.Stored, error) {
	var grants [1]tier.Grant
	stack := c.server.o.Stack
	want := tier.Store{Owner: c.owner, Insists: insists}
	_, err := stack.ReserveFor(c.ctx, want, chain, i, []uint32{uint32(len(payload))}, grants[:])
	switch statusOf(err) {
	case wire.StatusOverBudget:
		return wire.Stored{Result: wire.ResultOverBudget}, nil
	case wire.StatusOverQuota:
		return wire.Stored{Result: wire.ResultOverQuota}, nil
	case wire.StatusNoSpace:
		if !errors.Is(err, tier.ErrUnworthy) {
			err = nil
		}
		return wire.Stored{Result: wire.ResultNoSpace}, err
	}
	if err != nil {
		return wire.Stored{}, err
	}
	switch grants[0].Status {
	case tier.Pending:
		return wire.Stored{Result: wire.ResultPending}, nil
	case tier.Exists:
		return c.compare(chain, i, arena.Checksum(payload), blind), nil
	}
	ref := grants[0].Ref
	sum := ref.Block.Write(payload)
	ref.Block.SealSum(sum)
	var stored [1]bool
	if err := stack.CommitEach(chain, i, []tier.Ref{ref}, stored[:]); err != nil {
		return wire.Stored{}, err
	}
	if !stored[0] {
		return c.compare(chain, i, sum, blind), nil
	}
	c.server.count.stored(1, uint64(len(payload)))
	return wire.Stored{Result: wire.ResultStored, Sum: sum}, nil
}

// compare says whether a chunk that was there already has the bytes that sum to
// ours, as far as that can be told without I/O. A blind client is not told.
func (c *session) compare(chain *key.Chain, i int, ours uint64, blind bool) wire.Stored {
	if blind {
		return wire.Stored{Result: wire.ResultExists}
	}
	sum, _, known := c.server.o.Stack.Sum(c.owner, chain, i)
	if !known {
		return wire.Stored{Result: wire.ResultExists}
	}
	if sum != ours {
		c.differ(chain, i, "stored again")
		return wire.Stored{Result: wire.ResultDiffers, Sum: sum}
	}
	return wire.Stored{Result: wire.ResultExists, Sum: sum}
}
