package server

import (
	"cmp"
	"time"

	"github.com/kvstored/kvstored/internal/hint"
	"github.com/kvstored/kvstored/internal/missing"
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
	m, err := c.server.o.Stack.Match(c.ctx, chain, searchSet(req.Search))
	if err != nil {
		return err
	}
	if req.Chain.Form != wire.FormRef { // the request that made the job or fill was observed
		c.prompts.observe(chain, nil, true, hint.Advice{})
	}
	at := chain.Skip + m.Chunks
	why := func() missing.Absence { return c.server.o.Stack.Why(chain, at, searchSet(req.Search)) }
	c.reply(h, &wire.LookupReply{Match: matchOf(&m), Worth: c.worth(chain, &m), Missing: absent(c, &req.Shared, chain, at, why)})
	noteLookup(c, chain, &m, why)
	return nil
}

func lookupRanks(c *reader, h wire.Header, chain *key.Chain, req *wire.LookupRequest) error {
	chains, err := c.ranked(chain, req.Shared.Ranks)
	if err != nil {
		return err
	}
	g := group{stack: c.server.o.Stack, search: searchSet(req.Search), chains: chains}
	m, err := g.match(c.ctx)
	if err != nil {
		return err
	}
	if req.Chain.Form != wire.FormRef {
		c.prompts.observeAll(chains, true, hint.Advice{})
	}
	at := chain.Skip + m.Chunks
	why := func() missing.Absence { return g.why(at) }
	c.reply(h, &wire.LookupReply{Match: matchOf(&m), Worth: c.worthAll(chains, &m), Missing: absent(c, &req.Shared, chain, at, why)})
	noteLookup(c, chain, &m, why)
	return nil
}

// noteLookup has the log tell of a lookup, where it wants to know.
func noteLookup(c *reader, chain *key.Chain, m *stack.Match, why func() missing.Absence) {
	e := c.log.Debug()
	if !e.Enabled() {
		return
	}
	a, asked := why(), uint64(0)
	for _, n := range chain.Tokens[min(chain.Skip, len(chain.Tokens)):] {
		asked += uint64(n)
	}
	e.Uint64("connection", c.id).Hex("space", chain.Space[:]).Uint64("tokens", asked).Uint64("found", m.Tokens).
		Uint64("cpu", m.In[tier.CPU].Tokens).Uint64("disk", m.In[tier.Disk].Tokens).Uint64("remote", m.In[tier.Remote].Tokens).
		Dur("took", time.Since(c.begun)).Str("missing", a.Name()).Str("tier", a.TierName()).Msg("lookup")
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
