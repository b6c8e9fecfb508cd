package simulate

import (
	"cmp"

	"github.com/kvstored/kvstored/policy"
)

// belady evicts the block that is used again last (Belady, A Study of Replacement
// Algorithms for a Virtual-Storage Computer, IBM Systems Journal 1966). It
// knows the trace.
//
// Every use pushes the block's next use into a heap with the latest on top.
// Entries of earlier uses lie in the past, below all that is valid,
// and never come up.
type belady struct {
	next  []uint32 // for each access, the next one of its block
	uses  []uint32 // for each block, its next use; gone if it is not resident
	now   *int     // number of the access at hand
	heap  []use
	steps uint64
}

type use struct{ at, block uint32 }

// gone is no next use: the first access is that of no block before it.
const gone = 0

func (p *belady) Miss(uint64, int64) {}

func (p *belady) Add(id policy.ID, _ policy.Meta) { p.Touch(id) }

func (p *belady) Touch(id policy.ID) {
	p.uses[id] = p.next[*p.now]
	p.push(use{p.uses[id], uint32(id)})
}

func (p *belady) Remove(id policy.ID) { p.uses[id] = gone }

// Allow offers a block again. If it is in the heap already, one of the two is
// found gone when it comes up.
func (p *belady) Allow(id policy.ID) { p.push(use{p.uses[id], uint32(id)}) }

func (p *belady) Evict(ok func(policy.ID) bool) (policy.ID, bool) {
	for len(p.heap) > 0 {
		top := p.pop()
		if p.uses[top.block] != top.at || !ok(policy.ID(top.block)) {
			continue
		}
		p.uses[top.block] = gone
		return policy.ID(top.block), true
	}
	return 0, false
}

func (p *belady) Steps() uint64 { return p.steps }

// later reports whether a is evicted before b. Among those never used again
// it does not matter which goes, but it must not depend on the heap.
func later(a, b use) bool {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.block, b.block)) > 0
}

func (p *belady) push(u use) {
	p.steps++
	p.heap = append(p.heap, u)
	i := len(p.heap) - 1
	for i > 0 && later(u, p.heap[(i-1)/2]) {
		p.heap[i] = p.heap[(i-1)/2]
		i = (i - 1) / 2
	}
	p.heap[i] = u
}

func (p *belady) pop() use {
	p.steps++
	top := p.heap[0]
	last := p.heap[len(p.heap)-1]
	p.heap = p.heap[:len(p.heap)-1]
	if len(p.heap) == 0 {
		return top
	}
	i := 0
	for kid := 1; kid < len(p.heap); kid = 2*i + 1 {
		if kid+1 < len(p.heap) && later(p.heap[kid+1], p.heap[kid]) {
			kid++
		}
		if !later(p.heap[kid], last) {
			break
		}
		p.heap[i] = p.heap[kid]
		i = kid
	}
	p.heap[i] = last
	return top
}
