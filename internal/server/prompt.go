package server

import (
	"cmp"
	"context"
	"math"
	"sync"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/prefetch"
	"github.com/kvstored/kvstored/tier"
)

// prompt is what a request asks for: one prompt in every space that it names, and what of
// it is there. The chains of a hybrid model are those of its full groups, which the
// policies learn of; of a model that has none they are those of the first group.
type prompt struct {
	group
	first  []key.Chain       // the ranks of the first group, of which the request counts chunks
	match  store.Match       // of first; of a hybrid model the usable prefix
	family *store.Family     // of a hybrid model; or nil
	named  wire.Groups       // its groups, as the request named them
	usable store.FamilyMatch // of family
}

// promptIn is the prompt of a chain, alone in a list, that was made of the record sent.
func (r *resolver) promptIn(chains []key.Chain, sent *wire.Chain, o *wire.Shared, search tier.Set) (p prompt, err error) {
	p.group = group{store: r.session.server.o.Store, search: search}
	if o.Groups.Len() == 0 {
		p.chains, err = r.ranked(chains, o.Ranks)
		p.first = p.chains
		return p, err
	}
	if p.family, err = r.familyOf(&chains[0], sent, o); err != nil {
		return p, err
	}
	p.named, p.first = o.Groups, p.family.Chains[0]
	for g, ranks := range p.family.Chains {
		if p.family.Groups[g].Kind == index.Full {
			p.chains = append(p.chains, ranks...)
		}
	}
	if p.chains == nil {
		p.chains = p.first
	}
	return p, nil
}

// spaces is its chains by group and rank.
func (p *prompt) spaces() [][]key.Chain {
	if p.family == nil {
		return [][]key.Chain{p.first}
	}
	return p.family.Chains
}

// pieces is how many chunks there are in all spaces.
func (p *prompt) pieces() (n int) {
	for _, chains := range p.spaces() {
		n += len(chains) * chains[0].Len()
	}
	return n
}

// find finds what of it is there.
func (p *prompt) find(ctx context.Context) (err error) {
	f := p.family
	if f == nil {
		p.match, err = p.group.match(ctx)
		return err
	}
	p.usable, err = p.store.Lookups.MatchFamily(ctx, f, p.search, p.first[0].Len()*f.Groups[0].Chunk, nil)
	if err == nil {
		p.match = usableOf(f, &p.usable)
	}
	return err
}

// usableOf is what a usable prefix is to a client that counts chunks of the first group:
// where they are.
func usableOf(f *store.Family, m *store.FamilyMatch) (out store.Match) {
	each := uint64(tokensEach(f, m))
	count := func(n int) store.Count { return store.Count{Chunks: n, Tokens: uint64(n) * each} }
	out.Count = count(m.Needs[0].To - m.Needs[0].From)
	for p := range out.In {
		out.In[p] = count(m.Needs[0].In[p])
	}
	return out
}

// tokensEach is for how many tokens of the usable prefix each chunk of the first group
// stands: its own, but that the state of a model without full groups stands for all.
func tokensEach(f *store.Family, m *store.FamilyMatch) int {
	return (m.Tokens - f.Skip) / max(1, m.Needs[0].To-m.Needs[0].From)
}

// run is how many chunks behind the skipped ones are there, usable or not.
func (p *prompt) run() int {
	if f := p.family; f != nil {
		return (p.usable.Run - f.Skip) / f.Groups[0].Chunk
	}
	return p.match.Chunks
}

// end is the number of the first chunk that is not there, skipped ones included.
func (p *prompt) end() int { return p.first[0].Skip + p.run() }

// why is why there is no more of it.
func (p *prompt) why() explain.Absence {
	switch f := p.family; {
	case f == nil || p.usable.Tokens == p.usable.Run:
		return p.group.why(p.end())
	case f.Groups.OnlyStates():
		return p.group.why(p.end() - 1)
	}
	return explain.Because(explain.Group)
}

// worth is how many chunks behind the skipped ones are there or worth storing. What one of
// the ranks would not store is of no use to the others.
func (p *prompt) worth(payload uint32) uint32 {
	run, least := p.run(), math.MaxInt
	for r := range p.first {
		chain := &p.first[r]
		least = min(least, run+p.store.Planning.Admit(chain, chain.Skip+run, chain.Len(), payload))
	}
	return uint32(least)
}

// observed notes a request for the prompt, which tell tells the store of: what the windows
// and states of a hybrid model are worth then, and how far it reaches in all tiers.
func (p *prompt) observed(log *promptLog, prefillDepth int, tell func()) {
	chain := &p.first[0]
	if p.family == nil || chain.Len() == 0 {
		tell()
		return
	}
	again := log.take(chain).looked
	tell()
	if !again {
		p.store.Planning.ObserveFamily(p.family, &p.usable, prefillDepth)
	}
	if p.search == tier.All {
		log.take(chain).reached = &store.Reached{Usable: p.usable.Tokens, Run: p.usable.Run}
	}
}

// grouped is what a client that has named groups is told besides; nil for others.
func (p *prompt) grouped(ctx context.Context, lengths uint32) (*wire.Grouped, error) {
	m := &p.usable
	if p.family == nil {
		return nil, nil
	}
	out := &wire.Grouped{Tokens: uint64(m.Tokens), Run: uint64(m.Run), Lacks: m.Lacks, Needs: needsOf(m, p.named)}
	if lengths == 0 {
		return out, nil
	}
	found, err := p.store.Lookups.Lengths(ctx, p.family, p.search, m, int(lengths))
	if err != nil {
		return nil, err
	}
	told := make([]uint32, len(found))
	for i, n := range found {
		told[i] = uint32(n)
	}
	out.Lengths = wire.ViewU32s(told)
	return out, nil
}

func needsOf(m *store.FamilyMatch, groups wire.Groups) (out wire.Needs) {
	for g := range m.Needs {
		n := &m.Needs[g]
		need := wire.Need{Space: groups.At(g).Space, First: uint32(n.From), Chunks: uint32(n.To - n.From)}
		for p := range need.Tiers {
			need.Tiers[p] = uint32(n.In[p])
		}
		out = out.Add(need)
	}
	return out
}

// group is one prompt in every space that a request names: one, or those of
// all ranks of a tensor-parallel group. A chunk is there if all have it.
type group struct {
	store  *store.Store
	search tier.Set
	chains []key.Chain   // equal but for their spaces; nobody changes them
	each   []store.Match // by rank: what of the chain is known to be there
	rests  []*store.RemoteScan
	// unasked is why it is not known whether there is more: a shared tier is
	// switched off.
	unasked error
}

// match finds what of the group is there.
func (g *group) match(ctx context.Context) (store.Match, error) {
	g.each = make([]store.Match, len(g.chains))
	return g.store.Lookups.MatchAll(ctx, g.chains, g.search, g.each)
}

func (g *group) ranks() int { return len(g.chains) }
func (g *group) skip() int  { return g.chains[0].Skip }

// more finds out whether there may be more than is known. It returns how many
// chunks there are at most, the skipped ones included.
func (g *group) more() int {
	rests, most := make([]*store.RemoteScan, len(g.chains)), g.chains[0].Len()
	short := most
	for r := range g.chains {
		known := g.skip() + g.each[r].Chunks
		rest, err := g.store.Lookups.ScanRemote(&g.chains[r], known, g.search)
		if rests[r] = rest; rest == nil {
			most, g.unasked = min(most, known), cmp.Or(err, g.unasked)
		}
		short = min(short, known)
	}
	if most > short {
		g.rests = rests
	}
	return most
}

// sizeAt is how large the pieces of c from chunk i on are, skipped ones included: as
// the first of them, or the one before, where their sizes are known; else unknown.
func (g *group) sizeAt(c *key.Chain, i int, unknown int64) int64 {
	for _, at := range [...]int{i, i - 1} {
		if at < 0 || at >= c.Len() {
			continue
		}
		if _, size, known := g.store.Leases.Sum(ledger.Daemon, c, at); known {
			return int64(size)
		}
	}
	return unknown
}

// lanes gives disk and the remote tier a lane each where pieces may come from both. A chunk
// that the index does not have yet can only be in the remote tier.
func (g *group) lanes(ctx context.Context, m *store.Match) (n int, lane func(piece int) int) {
	if m.In[tier.Disk].Chunks == 0 || m.In[tier.Remote].Chunks == 0 && g.rests == nil {
		return 1, nil
	}
	places, err := g.store.Lookups.PlacesOf(ctx, g.chains, g.search, m.Chunks)
	if err != nil {
		return 1, nil
	}
	return lanesOf(func(piece int) bool {
		i := piece / g.ranks()
		return i >= len(places) || places[i] == tier.Remote
	})
}

// lanesOf is two lanes, the second one for pieces that are far: the slower tier must not
// keep the other waiting.
func lanesOf(far func(piece int) bool) (n int, lane func(piece int) int) {
	return 2, func(piece int) int {
		if far(piece) {
			return 1
		}
		return 0
	}
}

// find asks the shared tiers for the rest of each chain, until ctx ends.
func (g *group) find(ctx context.Context) (done func()) {
	ctx, stop := context.WithCancel(ctx)
	var finding sync.WaitGroup
	for _, r := range g.rests {
		if r != nil {
			finding.Go(func() { r.Find(ctx) })
		}
	}
	return func() {
		stop()
		finding.Wait()
	}
}

// exists waits until it is certain whether a rank has chunk i: nil if it does,
// prefetch.ErrEnd if not, another error where a tier does not say.
func (g *group) exists(ctx context.Context, rank, i int) error {
	if g.rests == nil || g.rests[rank] == nil || g.rests[rank].Reach(ctx, i) { // without a scan all is known
		return nil
	}
	return cmp.Or(g.rests[rank].Err(), prefetch.ErrEnd)
}

// touch counts one use of chunks from..to behind the skipped ones.
func (g *group) touch(from, to int) {
	for r := range g.chains {
		g.store.Leases.Touch(&g.chains[r], g.skip()+from, g.skip()+to)
	}
}
