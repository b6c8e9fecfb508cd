package server

import (
	"slices"

	"github.com/kvstored/kvstored/internal/missing"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// describe is job.describe: the refs are counted one by one, and the length that they
// are of is ready when all have been sent.
func (a *assembly) describe(from uint32, mark bool, bytes int) (s wire.JobState) {
	j := a.job
	s.Code, s.FailedTier = j.code()
	if j.mu.ended { // nothing more will be sent
		if s.First = uint32(j.mu.sent); j.mu.sent == len(a.tokens) {
			s.Ready = a.ready
		}
		return s
	}
	refs := j.mu.refs
	first := int(min(from, uint32(len(refs))))
	if from == wire.FromUnsent {
		first = min(j.mu.sent, len(refs))
	}
	s.First = uint32(first)
	to := len(refs)
	if most := max(1, (bytes-stateBytes-len(a.needs))/24); to-first > most {
		to, s.Code, s.FailedTier = first+most, wire.CodeRunning, 0
	}
	for i := first; i < to; i++ {
		r := refs[i].Block
		s.Refs = s.Refs.Add(wire.Ref{Offset: uint64(r.Offset()), Sum: r.Sum(), Length: uint32(r.Len()), Tokens: a.tokens[i]})
	}
	if to == len(refs) && s.Code != wire.CodeRunning {
		s.Ready, s.Needs = a.ready, a.needs
		for p := range s.Tiers {
			s.Tiers[p] = countOf(j.mu.in[p])
		}
	}
	if mark {
		j.mu.sent = to
	}
	return s
}

// all is the chains of all ranks and groups.
func (j *job) all() []key.Chain {
	if j.family == nil {
		return j.chains
	}
	return slices.Concat(j.family.family.Chains...)
}

// beginFamily is begin for a prompt of a hybrid model.
func beginFamily(c *reader, chain *key.Chain, a *ask) (*job, wire.PrefetchReply, error) {
	var reply wire.PrefetchReply
	f, err := familyOf(c, chain, a.sent, &a.shared)
	if err != nil {
		return nil, reply, err
	}
	pieces := 0
	for _, chains := range f.Chains {
		pieces += len(chains) * chains[0].Len()
	}
	cost := jobBytes + int64(len(a.lookupID)) + liveChunkBytes*int64(pieces)
	if err := c.account.Charge(cost); err != nil {
		return nil, reply, err
	}
	s := c.server
	m, err := s.o.Stack.MatchFamily(c.ctx, f, a.search, chain.Len()*f.Groups[0].Chunk, nil)
	if err != nil {
		c.account.Release(cost)
		return nil, reply, err
	}
	if reply.Grouped, err = groupedOf(c, f, a.search, &m, &a.shared); err != nil {
		c.account.Release(cost)
		return nil, reply, err
	}
	first := !a.observed && chain.Len() > 0 && !c.prompts.take(chain).looked
	if reply.Faults = c.hear(fullChains(f), a); first {
		s.o.Stack.ObserveFamily(f, &m, a.advice.PrefillDepth)
	}
	if !a.observed {
		noteReached(c, chain, a.search, &m)
	}
	reply.Match, reply.Worth = familyMatchOf(f, &m), worthFamily(c, f, &m)
	j := &job{id: s.ids.Add(1), session: c.session, group: group{stack: s.o.Stack, search: a.search, chains: f.Chains[0][:1]}}
	j.chain, j.cost, j.over = &j.chains[0], cost, c.prompts.find(chain).done
	if a.flags&wire.PrefetchPin != 0 {
		j.pin = a.lookupID
	}
	j.short = shortfallOf(j, a.began, reply.Match.Total.Tokens, j.whyFamily(f, &m))
	reply.Missing = absent(c, &a.shared, j.chain, m.Run/f.Groups[0].Chunk, func() missing.Absence { return j.short.behind })
	j.family = newAssembly(j, f, a.shared.Groups, &m)
	if rate := a.shared.PrefillRate; rate > 0 {
		reply.Advice = j.family.advise(c.ctx, rate)
	}
	s.count.lost.cut(s.o.Stack, f, &m, a.search)
	s.count.asked(chain, &stack.Match{Count: stack.Count{Chunks: int(reply.Match.Total.Chunks), Tokens: reply.Match.Total.Tokens}})
	j.family.begin()
	j.family.until = deadlineFor(c, j, a, reply.Match.Total.Tokens)
	enter(c, j, a)
	reply.Job, reply.State = j.id, j.firstState(a.refBytes)
	return j, reply, nil
}
