package server

import (
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

func (c *session) lookup(h wire.Header, body []byte) error {
	var req wire.LookupRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	chain := c.scratch(&req.Chain)
	if err := c.chain(chain, &req.Chain); err != nil {
		return err
	}
	if req.Ranks.Len() > 0 {
		return c.lookupRanks(h, chain, &req)
	}
	m, err := c.server.o.Stack.Match(c.turning, chain, searchSet(req.Search))
	if err != nil {
		return err
	}
	if req.Chain.Form != wire.FormRef { // whoever made that has announced it
		c.announce(chain, nil, true, advice{})
	}
	c.reply(h, &wire.LookupReply{Match: matchOf(&m), Worth: c.worth(chain, &m)})
	return nil
}

func (c *session) lookupRanks(h wire.Header, chain *key.Chain, req *wire.LookupRequest) error {
	chains, err := c.ranked(chain, req.Ranks)
	if err != nil {
		return err
	}
	g := group{stack: c.server.o.Stack, search: searchSet(req.Search), chains: chains}
	m, err := g.match(c.turning)
	if err != nil {
		return err
	}
	if req.Chain.Form != wire.FormRef {
		c.announceAll(chains, true, advice{})
	}
	c.reply(h, &wire.LookupReply{Match: matchOf(&m), Worth: c.worthAll(chains, &m)})
	return nil
}

// maxScratch is how many chunks a connection keeps room for between lookups:
// a prompt of four million tokens in chunks of 256.
const maxScratch = 16 << 10

// scratch is room for the chain of a request that keeps nothing of it: it is
// good until the next call. A reference shares a job's slices, which nobody
// may write over.
func (c *session) scratch(ch *wire.Chain) *key.Chain {
	if cap(c.asked.Hashes) > maxScratch {
		c.asked = key.Chain{}
	}
	if ch.Form == wire.FormRef {
		return new(key.Chain)
	}
	return &c.asked
}

// searchSet turns the protocol's tiers into the Stack's; both count nearest
// first.
func searchSet(t wire.Tiers) tier.Set {
	if t == 0 {
		return tier.All
	}
	return tier.Set(t)
}

func matchOf(m *tier.Match) (out wire.Match) {
	out.Total = countOf(m.Count)
	for p, n := range m.In {
		out.Tiers[p] = countOf(n)
	}
	return out
}

func countOf(n tier.Count) wire.Count {
	return wire.Count{Chunks: uint32(n.Chunks), Tokens: n.Tokens}
}
