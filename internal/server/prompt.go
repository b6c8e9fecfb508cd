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
// it is there. A chunk is there if all ranks have it.
type prompt struct {
	*store.Family // nobody changes it
	store         *store.Store
	search        tier.Set
	named         wire.Groups // as the request named them; empty for a plain prompt
	plan          store.Plan  // see find
	rests         []*store.RemoteScan
	// unsearched is why it is not known whether there is more: a shared tier is
	// switched off.
	unsearched error
}

// promptIn is the prompt of a chain, alone in a list, that was made of the record sent.
func (r *resolver) promptIn(chains []key.Chain, sent *wire.Chain, o *wire.Shared, search tier.Set) (p prompt, err error) {
	p = prompt{store: r.session.server.o.Store, search: search, named: o.Groups}
	if o.Groups.Len() > 0 {
		p.Family, err = r.familyOf(&chains[0], sent, o)
	} else if chains, err = r.ranked(chains, o.Ranks); err == nil {
		p.Family = store.Plain(chains)
	}
	return p, err
}

// plainPrompt is a prompt without groups.
func (s *Server) plainPrompt(ranks []key.Chain, search tier.Set) prompt {
	return prompt{Family: store.Plain(ranks), store: s.o.Store, search: search}
}

// chain is that of the first space, of which the request counts chunks.
func (p *prompt) chain() *key.Chain { return &p.Chains[0][0] }

// skip is how many of its chunks the client has.
func (p *prompt) skip() int { return p.chain().Skip }

// ranks is how many spaces the first group has.
func (p *prompt) ranks() int { return len(p.Chains[0]) }

// taught is the chains that the policies learn of: those of the full groups; of a model that
// has none those of the first.
func (p *prompt) taught() (chains []key.Chain) {
	if len(p.Groups) == 1 || p.Groups.OnlyStates() {
		return p.Chains[0]
	}
	for g, ranks := range p.Chains {
		if p.Groups[g].Kind == index.Full {
			chains = append(chains, ranks...)
		}
	}
	return chains
}

// pieces is how many chunks there are in all spaces.
func (p *prompt) pieces() (n int) {
	for _, chains := range p.Chains {
		n += len(chains) * chains[0].Len()
	}
	return n
}

// find finds what of it is there.
func (p *prompt) find(ctx context.Context) (err error) {
	p.plan, err = p.store.Lookups.Plan(ctx, p.Family, p.search, p.chain().Len()*p.Groups[0].Chunk, nil)
	return err
}

// why is why there is no more of it.
func (p *prompt) why() explain.Absence {
	if m := &p.plan; m.End == m.Run || p.Groups.OnlyStates() {
		return p.lacks(m.Next)
	}
	return explain.Because(explain.Group)
}

// worth is how many chunks behind the skipped ones are there or worth storing. What one of
// the ranks would not store is of no use to the others.
func (p *prompt) worth(payload uint32) uint32 {
	least, next := math.MaxInt, p.plan.Next
	for r := range p.Chains[0] {
		least = min(least, p.store.Planning.Admit(&p.Chains[0][r], next, p.chain().Len(), payload))
	}
	return uint32(next - p.skip() + least)
}

// observed notes a request for the prompt, which tell tells the store of: what the windows
// and states of a hybrid model are worth then, and how far it reaches in all tiers.
func (p *prompt) observed(log *promptLog, prefillDepth int, tell func()) {
	if p.IsPlain() || p.chain().Len() == 0 {
		tell()
		return
	}
	again := log.take(p.chain()).looked
	tell()
	if !again {
		p.store.Planning.ObserveFamily(p.Family, &p.plan, prefillDepth)
	}
	if p.search == tier.All {
		log.take(p.chain()).reached = &store.Reached{Usable: p.plan.End, Run: p.plan.Run}
	}
}

// grouped is what a client that has named groups is told besides; nil for others.
func (p *prompt) grouped(ctx context.Context, lengths uint32) (*wire.Grouped, error) {
	m := &p.plan
	if p.IsPlain() {
		return nil, nil
	}
	out := &wire.Grouped{Tokens: uint64(m.End), Run: uint64(m.Run), Lacks: m.Lacks, Needs: needsOf(m, p.named)}
	if lengths == 0 {
		return out, nil
	}
	found, err := p.store.Lookups.Lengths(ctx, p.Family, p.search, m, int(lengths))
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

func needsOf(m *store.Plan, groups wire.Groups) (out wire.Needs) {
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

// more finds out whether there may be more of a plain prompt than is known. It returns how
// many chunks there are at most, the skipped ones included.
func (p *prompt) more() int {
	rests, most := make([]*store.RemoteScan, p.ranks()), p.chain().Len()
	for r := range rests {
		known := p.plan.Next
		if p.plan.Runs != nil {
			known = p.plan.Runs[r]
		}
		rest, err := p.store.Lookups.ScanRemote(&p.Chains[0][r], known, p.search)
		if rests[r] = rest; rest == nil {
			most, p.unsearched = min(most, known), cmp.Or(err, p.unsearched)
		}
	}
	if most > p.plan.Next {
		p.rests = rests
	}
	return most
}

// sizeAt is how large the pieces of c from chunk i on are, skipped ones included: as
// the first of them, or the one before, where their sizes are known; else unknown.
func (p *prompt) sizeAt(c *key.Chain, i int, unknown int64) int64 {
	for _, at := range [...]int{i, i - 1} {
		if at < 0 || at >= c.Len() {
			continue
		}
		if _, size, known := p.store.Leases.Sum(ledger.Daemon, c, at); known {
			return int64(size)
		}
	}
	return unknown
}

// far says whether a piece of a plain prompt comes from the remote tier. A chunk that the
// index does not have yet can only be there.
func (p *prompt) far(piece int) bool {
	need, i := &p.plan.Needs[0], p.skip()+piece/p.ranks()
	return i >= need.To || need.At(i).Has(tier.Remote)
}

// lanesOf is a lane for pieces that are far and one for the others, where there are both: the
// slower tier must not keep the other waiting.
func lanesOf(from, to int, far func(piece int) bool) (n int, lane func(piece int) int) {
	for i, first := from+1, from < to && far(from); i < to; i++ {
		if far(i) != first {
			return 2, func(piece int) int {
				if far(piece) {
					return 1
				}
				return 0
			}
		}
	}
	return 1, nil
}

// findRest asks the shared tiers for the rest of each chain, until ctx ends.
func (p *prompt) findRest(ctx context.Context) (done func()) {
	ctx, stop := context.WithCancel(ctx)
	var finding sync.WaitGroup
	for _, r := range p.rests {
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
func (p *prompt) exists(ctx context.Context, rank, i int) error {
	if p.rests == nil || p.rests[rank] == nil || p.rests[rank].Reach(ctx, i) { // without a scan all is known
		return nil
	}
	return cmp.Or(p.rests[rank].Err(), prefetch.ErrEnd)
}

// touch counts one use of chunks from..to of the first group behind the skipped ones.
func (p *prompt) touch(from, to int) {
	for r := range p.Chains[0] {
		p.store.Leases.Touch(&p.Chains[0][r], p.skip()+from, p.skip()+to)
	}
}
