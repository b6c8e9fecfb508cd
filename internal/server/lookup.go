package server

import (
	"cmp"

	"github.com/kvstored/kvstored/internal/hint"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

func handleLookup(c *reader, h wire.Header, body []byte) error {
	var req wire.LookupRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	chain := c.scratch(&req.Chain)
	if err := cmp.Or(checkLengths(&req.Shared), promptOf(c, chain, &req.Chain, &req.Shared)); err != nil {
		return err
	}
	if req.Shared.Groups.Len() > 0 {
		return lookupFamily(c, h, chain, &req)
	}
	if req.Shared.Ranks.Len() > 0 {
		return lookupRanks(c, h, chain, &req)
	}
	m, err := c.server.o.Stack.Match(c.turning, chain, searchSet(req.Search))
	if err != nil {
		return err
	}
	if req.Chain.Form != wire.FormRef { // the request that made the job or fill was observed
		c.prompts.observe(chain, nil, true, hint.Advice{})
	}
	c.reply(h, &wire.LookupReply{Match: matchOf(&m), Worth: c.worth(chain, &m)})
	return nil
}

func lookupRanks(c *reader, h wire.Header, chain *key.Chain, req *wire.LookupRequest) error {
	chains, err := c.ranked(chain, req.Shared.Ranks)
	if err != nil {
		return err
	}
	g := group{stack: c.server.o.Stack, search: searchSet(req.Search), chains: chains}
	m, err := g.match(c.turning)
	if err != nil {
		return err
	}
	if req.Chain.Form != wire.FormRef {
		c.prompts.observeAll(chains, true, hint.Advice{})
	}
	c.reply(h, &wire.LookupReply{Match: matchOf(&m), Worth: c.worthAll(chains, &m)})
	return nil
}

// searchSet turns the protocol's tiers into the Stack's; both count nearest
// first.
func searchSet(t wire.Tiers) tier.Set {
	if t == 0 {
		return tier.All
	}
	return tier.Set(t)
}

func matchOf(m *stack.Match) (out wire.Match) {
	out.Total = countOf(m.Count)
	for p := range out.Tiers {
		out.Tiers[p] = countOf(m.In[p])
	}
	return out
}

func countOf(n stack.Count) wire.Count {
	return wire.Count{Chunks: uint32(n.Chunks), Tokens: n.Tokens}
}
