package server

import (
	"slices"
	"time"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

func handleLookup(c *reader, _ wire.Header, req wire.LookupRequest) (wire.Message, error) {
	chain := c.resolver.scratch(&req.Chain)
	if err := c.resolver.promptOf(&chain[0], &req.Chain, &req.Shared); err != nil {
		return nil, err
	}
	p, err := c.resolver.promptIn(chain, &req.Chain, &req.Shared, searchSet(req.Search))
	if err == nil {
		err = p.find(c.session.ctx)
	}
	if err != nil {
		return nil, err
	}
	if req.Chain.Form != wire.FormRef { // the request that made the job or fill was observed
		p.observed(&c.prompts, 0, func() { c.prompts.observe(p.taught(), true, hint.Advice{}) })
	}
	grouped, err := p.grouped(c.session.ctx, req.Shared.Lengths)
	if err != nil {
		return nil, err
	}
	noteLookup(c, &p)
	return &wire.LookupReply{Match: matchOf(&p.plan.Match), Worth: p.worth(c.payload), Missing: absent(&c.rights, &req.Shared, p.why), Grouped: grouped}, nil
}

// noteLookup has the log tell of a lookup, where it wants to know.
func noteLookup(c *reader, p *prompt) {
	e := c.session.log.Debug()
	if !e.Enabled() {
		return
	}
	chain, m, a := p.chain(), &p.plan.Match, p.why()
	asked := chain.TokensIn(chain.Skip, chain.Len())
	e.Uint64("connection", c.session.id).Hex("space", chain.Space[:]).Uint64("tokens", asked).Uint64("found", m.Tokens).
		Uint64("cpu", m.In[tier.CPU].Tokens).Uint64("disk", m.In[tier.Disk].Tokens).Uint64("remote", m.In[tier.Remote].Tokens).
		Dur("took", time.Since(c.begun)).Str("missing", a.Name()).Str("tier", a.TierName()).Msg("lookup")
}

// searchSet turns the protocol's tiers into the store's; both count nearest
// first.
func searchSet(t wire.Tiers) tier.Set {
	if t == 0 {
		return tier.All
	}
	return tier.Set(t)
}

func matchOf(m *store.Match) (out wire.Match) {
	out.Total = countOf(m.Count)
	for p := range out.Tiers {
		out.Tiers[p] = countOf(m.In[p])
	}
	return out
}

func countOf(n store.Count) wire.Count {
	return wire.Count{Chunks: uint32(n.Chunks), Tokens: n.Tokens}
}

// absentCodes are the reasons as clients are told them.
var absentCodes = map[explain.Reason]wire.Code{
	explain.NeverStored: wire.CodeNeverStored,
	explain.Evicted:     wire.CodeEvicted,
	explain.Declined:    wire.CodeDeclined,
	explain.Deleted:     wire.CodeNotFound,
	explain.OtherSpace:  wire.CodeOtherSpace,
	explain.TierOff:     wire.CodeTierOff,
	explain.Corrupt:     wire.CodeCorrupt,
	explain.Gap:         wire.CodeGap,
	explain.Pending:     wire.CodePending,
	explain.Scanning:    wire.CodeStarting,
	explain.NotSearched: wire.CodeExists,
	explain.Distrusted:  wire.CodeDistrusted,
	explain.Group:       wire.CodeGroup,
}

// absent is what the session is told of the first chunk that a prompt lacks; nil where it
// did not ask, or nothing is missing.
func absent(r *rights, o *wire.Shared, why func() explain.Absence) *wire.Missing {
	if !o.Why {
		return nil
	}
	a := why()
	code, ok := absentCodes[a.Reason]
	if !ok {
		return nil
	}
	if code == wire.CodeOtherSpace && !mayReadElsewhere(r, a.Key) {
		code = wire.CodeNeverStored
	}
	m := &wire.Missing{Code: code, Ago: wire.NotKnown}
	if int(a.Tier) < wire.TierCount {
		m.Tier = 1 << a.Tier
	}
	if left := a.Time(); !left.IsZero() {
		m.Ago = uint32(max(0, time.Since(left).Seconds()))
	}
	return m
}

// mayReadElsewhere reports whether the session may read one of the other spaces that have a
// chunk of the same tokens. Of others it is not told.
func mayReadElsewhere(r *rights, k key.Key) bool {
	return slices.ContainsFunc(r.session.server.o.Store.Lookups.SpacesWith(k, mostNearest), func(id key.SpaceID) bool { return r.session.server.has(r.session.uid, access.Read, id) })
}
