package policytest

import (
	"slices"
	"testing"

	"github.com/kvstored/kvstored/policy"
)

// Plan runs a Planner against its model as an owner with chains does: it
// observes requests over a random tree, asks whether chunks are admitted, and
// evicts past locks. At every moment the residents are a set of whole prefixes
// within Capacity. It returns the model's counts of events. source is that of Differ.
func Plan(t testing.TB, name string, source func(n int) int) map[string]int {
	d := newDiffer(t, name)
	p := &plan{t: t, got: d.got.(policy.Planner), want: d.want.(policy.Planner), parents: []uint64{0}}
	for {
		op := source(16)
		if op < 0 {
			break
		}
		p.step(op, source)
		p.check()
	}
	p.unlock()
	for len(p.resident) > 0 {
		p.evict()
		p.check()
	}
	if left := p.evict(); left {
		t.Fatal("evicted from an empty store")
	}
	return Events(p.want)
}

// plan is a tree of nodes, whose number is their hash and, of a resident,
// their ID; node 0 is no chunk.
type plan struct {
	t         testing.TB
	got, want policy.Planner
	parents   []uint64 // of each node: a node, 0 = none
	alone     []uint64 // nodes that stand alone at first
	resident  []uint64
	locked    []uint64
	passed    []uint64 // refused, and not named by a call since
	victims   int
}

func (p *plan) step(op int, source func(n int) int) {
	pick := func(n int) int { return max(0, source(n)) }
	switch {
	case op < 10:
		// Few nodes, so that ghosts are met again.
		node := uint64(pick(len(p.parents)))
		for grow := pick(8); grow > 0 && len(p.parents) < 6*Capacity; grow-- {
			p.parents = append(p.parents, node)
			node = uint64(len(p.parents) - 1)
		}
		if node != 0 {
			p.request(node, pick)
		}
	case op < 12:
		if len(p.resident) > 0 {
			p.locked = append(p.locked, p.resident[pick(len(p.resident))])
		}
	case op < 13:
		p.unlock()
	case op < 14:
		if leaves := slices.DeleteFunc(slices.Clone(p.resident), p.hasKid); len(leaves) > 0 {
			p.remove(leaves[pick(len(leaves))])
		}
	default:
		p.evict()
	}
}

func (p *plan) request(node uint64, pick func(int) int) {
	var chain []uint64
	for at := node; at != 0; at = p.parents[at] {
		chain = append(chain, at)
	}
	slices.Reverse(chain)
	r := policy.Request{Chain: chain, ChunkTokens: 256 << pick(3)}
	r.Tokens = len(chain)*r.ChunkTokens - pick(100)
	r.PrefillDepth = []int{0, 0, 300, 3000}[pick(4)]
	if pick(32) == 0 {
		r.ChunkTokens <<= 12 // so much time passes that what was to come did not
	}
	if pick(8) == 0 {
		r.Hint, r.HintFrom = policy.Hint(pick(7)), pick(len(chain))
	}
	if pick(16) == 0 {
		r.Chain = append(r.Chain, chain[pick(len(chain))]) // malformed
	}
	p.got.Observe(r)
	p.want.Observe(r)
	if pick(16) == 0 {
		h, from := policy.Hint(pick(7)), pick(len(chain))
		p.got.Advise(chain, h, from)
		p.want.Advise(chain, h, from)
	}
	p.store(chain)
	if pick(8) == 0 {
		p.beside(&r, pick)
	}
}

// beside is a request for chunks that stand alone, beside the last one.
func (p *plan) beside(r *policy.Request, pick func(int) int) {
	if len(p.parents) < 6*Capacity {
		p.alone = append(p.alone, uint64(len(p.parents)))
		p.parents = append(p.parents, 0)
	}
	from := pick(len(p.alone))
	chain := p.alone[from:min(len(p.alone), from+1+pick(3))]
	b := policy.Request{Chain: chain, ChunkTokens: r.ChunkTokens, Tokens: pick(max(1, r.Tokens)), PrefillDepth: r.PrefillDepth, Beside: true}
	p.got.Observe(b)
	p.want.Observe(b)
	p.store(chain)
}

// store adds the chunks of a chain, as far as there is room or they are worth it.
func (p *plan) store(chain []uint64) {
	for _, node := range chain {
		if slices.Contains(p.resident, node) {
			continue
		}
		up := p.parents[node]
		if len(p.resident) >= Capacity && !p.replace(node, up) {
			break
		}
		m := policy.Meta{Hash: node, Parent: up, Size: 1}
		p.got.Add(policy.ID(node), m)
		p.want.Add(policy.ID(node), m)
		p.passed = slices.DeleteFunc(p.passed, func(x uint64) bool { return x == up })
		p.resident = append(p.resident, node)
	}
}

// replace makes room for node, whose parent has to stay.
func (p *plan) replace(node, up uint64) bool {
	worth, want := p.got.Admit(node, up), p.want.Admit(node, up)
	if worth != want {
		p.t.Fatalf("after %d victims: chunk %d is worth storing: %v, the model says %v", p.victims, node, worth, want)
	}
	if seen, want := p.got.Seen(node), p.want.Seen(node); seen != want {
		p.t.Fatalf("after %d victims: chunk %d was seen before: %v, the model says %v", p.victims, node, seen, want)
	}
	if !worth {
		return false
	}
	if up != 0 {
		p.locked = append(p.locked, up)
	}
	done := p.evict()
	if up != 0 {
		p.locked = p.locked[:len(p.locked)-1]
		p.allow(up)
	}
	return done
}

func (p *plan) evict() bool {
	got, found := p.got.Evict(func(id policy.ID) bool {
		switch node := uint64(id); {
		case !slices.Contains(p.resident, node) || p.hasKid(node):
			p.t.Fatalf("after %d victims: offered %d, which is no leaf", p.victims, id)
		case slices.Contains(p.passed, node):
			p.t.Fatalf("after %d victims: offered %d again, which was refused", p.victims, id)
		case slices.Contains(p.locked, node):
			p.passed = append(p.passed, node)
			return false
		}
		return true
	})
	want, exists := p.want.Evict(func(id policy.ID) bool { return !slices.Contains(p.locked, uint64(id)) })
	if got != want || found != exists {
		p.t.Fatalf("after %d victims: evicted %d, %v; the model evicts %d, %v", p.victims, got, found, want, exists)
	}
	if found {
		p.victims++
		p.gone(uint64(got))
	}
	return found
}

func (p *plan) remove(node uint64) {
	p.got.Remove(policy.ID(node))
	p.want.Remove(policy.ID(node))
	p.gone(node)
}

func (p *plan) gone(node uint64) {
	is := func(x uint64) bool { return x == node }
	p.resident = slices.DeleteFunc(p.resident, is)
	p.locked = slices.DeleteFunc(p.locked, is)
	p.passed = slices.DeleteFunc(p.passed, is)
}

func (p *plan) unlock() {
	was := p.locked
	p.locked = nil
	for _, node := range was {
		p.allow(node)
	}
}

// allow says that a node is not locked, if it is not.
func (p *plan) allow(node uint64) {
	if slices.Contains(p.resident, node) && !slices.Contains(p.locked, node) {
		p.passed = slices.DeleteFunc(p.passed, func(x uint64) bool { return x == node })
		p.got.Allow(policy.ID(node))
		p.want.Allow(policy.ID(node))
	}
}

func (p *plan) hasKid(node uint64) bool {
	return slices.ContainsFunc(p.resident, func(x uint64) bool { return p.parents[x] == node })
}

func (p *plan) check() {
	p.t.Helper()
	if len(p.resident) > Capacity {
		p.t.Fatalf("%d are resident, %d may be", len(p.resident), Capacity)
	}
	for _, node := range p.resident {
		if up := p.parents[node]; up != 0 && !slices.Contains(p.resident, up) {
			p.t.Fatalf("%d is resident without its parent", node)
		}
	}
}
