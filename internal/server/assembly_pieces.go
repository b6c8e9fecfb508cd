package server

import (
	"cmp"
	"slices"

	"github.com/kvstored/kvstored/internal/hybrid"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/tier"
)

// each calls fn for the pieces that m needs: of each group, of each chunk, of each rank.
func (a *assembly) each(m *stack.FamilyMatch, fn func(p stack.Piece)) {
	for g, need := range m.Needs {
		for i := need.From; i < need.To; i++ {
			for r := range a.family.Chains[g] {
				fn(stack.Piece{Group: g, Rank: r, Chunk: i})
			}
		}
	}
}

// load is a piece that is to be brought up.
type load struct {
	stack.Piece
	turn int      // the token by which it has its turn
	at   tier.Set // where it is
}

// missing is the pieces that m needs and the job does not hold, in the order in
// which to load them: those of the full groups in the order of the prompt, and the
// others before the last of these.
func (a *assembly) missing(m *stack.FamilyMatch) (out []load) {
	a.each(m, func(p stack.Piece) {
		if _, ok := a.held[p]; !ok {
			need := &m.Needs[p.Group]
			out = append(out, load{p, a.turn(m, p), tier.Set(need.At[p.Chunk-need.From])})
		}
	})
	byTurn(out)
	return out
}

func byTurn(loads []load) {
	slices.SortStableFunc(loads, func(p, q load) int { return cmp.Compare(p.turn, q.turn) })
}

// turn is the token by which a piece has its turn.
func (a *assembly) turn(m *stack.FamilyMatch, p stack.Piece) int {
	if g := a.family.Groups[p.Group]; g.Kind == hybrid.Full {
		return (p.Chunk + 1) * g.Chunk
	}
	return m.Tokens - 1
}

// hold leases the pieces of m that are in DRAM and not held.
func (a *assembly) hold(m *stack.FamilyMatch) {
	for g, need := range m.Needs {
		for r := range a.family.Chains[g] {
			for from := need.From; from < need.To; {
				to := from
				for to < need.To && !a.has(g, r, to) && tier.Set(need.At[to-need.From]) == tier.Of(tier.CPU) {
					to++
				}
				if to == from {
					from++
				} else if from = a.holdRun(g, r, from, to); from < to {
					break // a budget, or it was evicted this moment: loading it says which
				}
			}
		}
	}
}

// holdRun holds chunks from..to as far as it can, and returns how far.
func (a *assembly) holdRun(g, r, from, to int) int {
	j, refs := a.job, make([]tier.Ref, to-from)
	n, _ := j.stack.Hold(j.session.owner, ledger.Lease, &a.family.Chains[g][r], from, to, refs)
	for i, ref := range refs[:n] {
		a.held[stack.Piece{Group: g, Rank: r, Chunk: from + i}] = chunk{ref, tier.CPU}
	}
	return from + n
}

func (a *assembly) has(g, r, i int) bool {
	_, ok := a.held[stack.Piece{Group: g, Rank: r, Chunk: i}]
	return ok
}

// needs reports whether m needs a piece.
func needs(m *stack.FamilyMatch, p stack.Piece) bool {
	need := &m.Needs[p.Group]
	return need.From <= p.Chunk && p.Chunk < need.To
}

// unneeded is the pieces that are held and that m does not need.
func (a *assembly) unneeded(m *stack.FamilyMatch) (out []stack.Piece) {
	for p := range a.held {
		if !needs(m, p) {
			out = append(out, p)
		}
	}
	return out
}

func (a *assembly) release(ps []stack.Piece) {
	for _, p := range ps {
		a.job.unlease([]tier.Ref{a.held[p].ref})
		delete(a.held, p)
	}
}
