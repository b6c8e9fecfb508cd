package server

import (
	"errors"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// handlePut stores payloads that came with the request.
func handlePut(c *reader, h wire.Header, req wire.PutRequest) (wire.Message, error) {
	var chain key.Chain
	if err := c.chain(&chain, &req.Chain); err != nil {
		return nil, err
	}
	n := req.Sizes.Len()
	if n == 0 {
		return nil, refuse(wire.CodeBadRequest, "no chunks are given")
	}
	if err := c.resultsFit(n); err != nil {
		return nil, err
	}
	from, to, err := span(&chain, req.First, uint32(n))
	if err != nil {
		return nil, err
	}
	sizes, err := c.sizes(req.Sizes, to-from, c.server.maxPayload)
	if err != nil {
		return nil, err
	}
	said, blind := c.prompts.find(&chain), c.blind(chain.Space)
	want := putWish{said.force, said.allows(req.MaxAge)}
	results := make(wire.Results, 0, 16*n)
	for i, size := range sizes {
		if err := c.ctx.Err(); err != nil {
			return nil, err
		}
		payload := req.Payloads[:size]
		req.Payloads = req.Payloads[size:]
		stored, err := putOne(c, &chain, from+i, payload, want, blind)
		declined := errors.Is(err, stack.ErrNotAdmitted)
		if err != nil && !declined {
			return nil, err
		}
		results = results.Add(stored)
		if declined || stored.Code == wire.CodeOverQuota { // what follows would push out what leads to it
			for range sizes[i+1:] {
				results = results.Add(stored)
			}
			break
		}
	}
	c.server.wishes.stored(c.uid, &said, &chain, from, to)
	if said.done {
		c.server.o.Stack.MarkCold(&chain)
	}
	return &wire.StoreReply{Results: results}, nil
}

// putWish is how a client wants chunks stored.
type putWish struct {
	force  bool
	maxAge time.Duration
}

// putOne stores one chunk. With stack.ErrNotAdmitted there is a result as well.
func putOne(c *reader, chain *key.Chain, i int, payload []byte, wish putWish, blind bool) (wire.Stored, error) {
	var grants [1]stack.Grant
	store := c.server.o.Stack
	want := stack.Store{Owner: c.owner, Force: wish.force}
	if _, err := store.Reserve(c.ctx, want, chain, i, []uint32{uint32(len(payload))}, grants[:]); err != nil {
		return notStored(err)
	}
	switch grants[0].Status {
	case stack.Pending:
		return wire.Stored{Code: wire.CodePending}, nil
	case stack.Exists:
		return compareStored(c.session, chain, i, arena.Checksum(payload), blind), nil
	}
	ref := grants[0].Ref
	sum := ref.Block.Write(payload)
	ref.Block.SealSum(sum)
	var stored [1]bool
	store.Commit(chain, i, []tier.Ref{ref}, wish.maxAge, stored[:])
	if !stored[0] {
		return compareStored(c.session, chain, i, sum, blind), nil
	}
	c.server.count.stored(1, uint64(len(payload)))
	c.server.model(chain.Space).storedBytes.Add(uint64(len(payload)))
	return wire.Stored{Code: wire.CodeOK, Sum: sum}, nil
}

// compareStored says whether a chunk that was there already has the bytes that sum to
// ours, as far as that can be told without I/O. A blind client is not told.
func compareStored(c *session, chain *key.Chain, i int, ours uint64, blind bool) wire.Stored {
	if blind {
		return wire.Stored{Code: wire.CodeExists}
	}
	sum, _, known := c.server.o.Stack.Sum(c.owner, chain, i)
	if !known {
		return wire.Stored{Code: wire.CodeExists}
	}
	if sum != ours {
		logDiffering(c, chain, i, "stored again")
		return wire.Stored{Code: wire.CodeDiffers, Sum: sum}
	}
	return wire.Stored{Code: wire.CodeExists, Sum: sum}
}

// notStored is the result of a chunk for which there is no room. An error beside it
// says that what follows is not wanted either; without a result the request fails.
func notStored(err error) (wire.Stored, error) {
	switch code := codeOf(err); code {
	case wire.CodeOverBudget, wire.CodeOverQuota, wire.CodeNoSpace:
		return wire.Stored{Code: code}, nil
	case wire.CodeDeclined:
		return wire.Stored{Code: code}, err
	}
	return wire.Stored{}, err
}
