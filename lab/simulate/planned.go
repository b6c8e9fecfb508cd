package simulate

import "github.com/kvstored/kvstored/policy"

// planned plays requests under a policy that sees them whole and may refuse
// to store the rest of a prompt. The resident blocks are a set of whole prefixes.
type planned struct {
	*tree
	planner policy.Planner
	trace   *Trace
	o       *Options
	hashes  []uint64
}

func (p *planned) request(at int, blocks []uint32) (prefix, hits int) {
	if p.idle != nil {
		p.idle.arrive(p.turn, blocks)
		defer p.idle.leave(p.turn)
	}
	for prefix < len(blocks) && p.has(blocks[prefix]) {
		prefix++
	}
	p.observe(at, blocks)
	stored, wanted := prefix, p.wanted(at, blocks)
	for stored < len(blocks) && p.store.n < p.capacity || stored < wanted && p.replace(blocks[stored]) {
		b := blocks[stored]
		p.add(b)
		p.adopt(b)
		stored++
	}
	p.turn++
	if stored > 0 {
		p.policy.Allow(policy.ID(blocks[stored-1]))
	}
	return prefix, prefix
}

func (p *planned) observe(at int, blocks []uint32) {
	p.hashes = p.hashes[:0]
	for _, b := range blocks {
		p.hashes = append(p.hashes, hashOf(b))
	}
	r := policy.Request{Chain: p.hashes, ChunkTokens: p.trace.blockTokens, Tokens: p.trace.requests[p.turn].tokens, PrefillDepth: weighed(p.o.ByCompute, p.o.PrefillDepth)}
	switch {
	case p.o.Answers:
		r.Hint = policy.AnswerHint(p.trace.requests[p.turn].answer)
	case p.o.Oracle, p.o.Sessions == Turns:
		r.Hint = policy.Done
		for r.HintFrom < len(blocks) && p.trace.nextUse()[at+r.HintFrom] != never {
			r.HintFrom++
		}
	}
	p.planner.Observe(r)
}

// replace makes room for b if it is worth more than what would go, as it is
// than anything of a session that is idle.
func (p *planned) replace(b uint32) bool {
	if b, found := p.first(); found {
		p.evicted(b)
		return true
	}
	up := p.parents[b]
	if !p.planner.Admit(hashOf(b), uint64(up)) {
		return false
	}
	id, found := p.policy.Evict(func(id policy.ID) bool { return uint32(id)+1 != up })
	if !found {
		return false
	}
	p.drop(uint32(id))
	if up := p.parents[id]; up != 0 {
		p.kids[up-1]--
	}
	return true
}

// hashOf is the hash of a block, of which none is 0: that is no parent.
func hashOf(b uint32) uint64 { return uint64(b) + 1 }
