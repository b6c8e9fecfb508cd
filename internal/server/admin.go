package server

import (
	"context"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

func handlePins(c *reader, h wire.Header, body []byte) error {
	var req wire.EmptyRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	pins, holders, _ := c.server.Held(math.MaxInt)
	var reply wire.PinsReply
	for _, p := range pins {
		reply.Pins = append(reply.Pins, wire.PinInfo{
			LookupID: p.Name, Space: p.Space, Connection: p.Connection,
			Bytes: p.Bytes, Chunks: uint32(p.Chunks), ExpiresMillis: uint32(p.Left.Milliseconds()),
		})
	}
	for _, o := range holders {
		reply.Holders = append(reply.Holders, wire.Holder(o))
	}
	c.reply(h, &reply)
	return nil
}

// live lists the jobs and fills of a connection.
func (c *session) live() (jobs []*job, fills []*fill) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.mu.jobs {
		jobs = append(jobs, j)
	}
	for _, f := range c.mu.fills {
		fills = append(fills, f)
	}
	return jobs, fills
}

// leasedBytes sums the payloads of leases and fills, each chunk once.
func (c *session) leasedBytes() (n uint64) {
	jobs, fills := c.live()
	seen := make(map[ledger.ID]bool)
	for _, j := range jobs {
		j.mu.Lock()
		for _, r := range j.mu.refs {
			if !seen[r.ID] {
				seen[r.ID] = true
				n += uint64(r.Block.Len())
			}
		}
		j.mu.Unlock()
	}
	for _, f := range fills {
		f.mu.Lock()
		for _, s := range f.mu.slots {
			if s.ref.Valid() {
				n += uint64(s.ref.Block.Len())
			}
		}
		f.mu.Unlock()
	}
	return n
}

func handleRevoke(c *reader, h wire.Header, body []byte) error {
	var req wire.RevokeRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	n := 0
	switch req.What {
	case wire.RevokePin:
		n = c.server.RevokePin(req.LookupID)
	case wire.RevokePins:
		n = c.server.RevokePins()
	case wire.RevokeConnection:
		var ok bool
		if n, ok = c.server.RevokeConnection(req.Connection); !ok {
			return refuse(wire.CodeNotFound, "there is no connection %d; `kvstored pins` lists those that hold something", req.Connection)
		}
	}
	c.log.Warn().Stringer("what", req.What).Str("lookup_id", req.LookupID).Uint64("connection", req.Connection).Int("chunks", n).Msg("revoked by an administrator")
	c.reply(h, &wire.ChunksReply{Chunks: uint64(n)})
	return nil
}

// revokeAll frees all that a connection holds, and returns how many chunks
// that was. The connection stays and may hold something else.
func (c *session) revokeAll() (n int) {
	c.whileOpen(func() {
		jobs, fills := c.live()
		for _, j := range jobs {
			n += j.revoke("an administrator wants its memory")
		}
		for _, f := range fills {
			n += f.revoke("an administrator wants its memory")
		}
		n += c.server.pins.drop(c)
	})
	return n
}

func handlePolicy(c *reader, h wire.Header, body []byte) error {
	var req wire.PolicyRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	if req.Tier == 0 {
		c.reply(h, policiesOf(c.session))
		return nil
	}
	if names := policy.All(); !slices.Contains(names, req.Name) {
		return refuse(wire.CodeBadRequest, "there is no policy called %.64q; use %s", req.Name, strings.Join(names, ", "))
	}
	// Entries move a few hundred a lock round: not while others' requests
	// wait on this connection.
	return c.asyncReply(h, func(context.Context) (wire.Message, error) {
		p := tier.Place(bits.TrailingZeros8(uint8(req.Tier)))
		if err := c.server.o.Stack.SetPolicy(p, req.Name); err != nil {
			return nil, err
		}
		return policiesOf(c.session), nil
	})
}

// policiesOf is the answer to a policy request.
func policiesOf(c *session) *wire.PolicyReply {
	reply := wire.PolicyReply{Names: policy.All()}
	for p := tier.CPU; p < tier.Places; p++ {
		if name, ok := c.server.o.Stack.PolicyOf(p); ok {
			reply.Tiers = append(reply.Tiers, wire.TierPolicy{Tier: wire.Tiers(tier.Of(p)), Name: name})
		}
	}
	return &reply
}

func handleClear(c *reader, h wire.Header, body []byte) error {
	var req wire.ClearRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	return c.asyncReply(h, func(ctx context.Context) (wire.Message, error) {
		n, err := c.server.o.Stack.Clear(ctx, tier.Set(req.Tiers))
		return &wire.ChunksReply{Chunks: uint64(n)}, err
	})
}
