package server

import (
	"context"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/tier"
)

// A job that may not bring all up in time also loads what some shorter usable lengths
// need, each before the last full chunk of that length: at its deadline it has one of
// these then. They are looked for at shares of the length to be expected, and take a tenth
// of the bytes at most.
var insuredAt = [...]float64{1, .85, .7, .55, .4, .25, .12}

const (
	insuredBytes = 10 // one in so many
	inTime       = .8 // of the time that is left: what is expected by then is certain
)

// insure adds to the loads of m what shorter lengths need. sizes is by group.
func (a *assembly) insure(ctx context.Context, m *stack.FamilyMatch, loads []load, sizes []int64) []load {
	if a.job.until.IsZero() || a.stopped() != nil {
		return loads
	}
	budget := int64(0)
	planned := make(map[stack.Piece]int, len(loads))
	for i, l := range loads {
		planned[l.Piece] = i
		budget += sizes[l.Group]
	}
	budget /= insuredBytes
	skip, last := a.family.Skip, m.Tokens
	reach, sure := a.reach(m, loads, sizes)
	if sure {
		return loads
	}
	for _, share := range insuredAt {
		most := min(skip+int(share*float64(reach-skip)), last-1)
		n, err := a.job.stack.ProbeFamily(ctx, a.family, a.job.search, most, a.lost)
		if err != nil || n.Tokens <= skip {
			break
		}
		last = n.Tokens
		loads, budget = a.cover(&n, loads, planned, sizes, budget)
	}
	byTurn(loads)
	return loads
}

// cover adds what n needs to loads, if the budget has room for it.
func (a *assembly) cover(n *stack.FamilyMatch, loads []load, planned map[stack.Piece]int, sizes []int64, budget int64) ([]load, int64) {
	more, cost := a.lacking(n), int64(0)
	for _, l := range more {
		if _, ok := planned[l.Piece]; !ok {
			cost += sizes[l.Group]
		}
	}
	if cost > budget {
		return loads, budget
	}
	for _, l := range more {
		if i, ok := planned[l.Piece]; ok {
			loads[i].turn = min(loads[i].turn, l.turn)
			continue
		}
		planned[l.Piece] = len(loads)
		loads = append(loads, l)
	}
	return loads, budget - cost
}

// reach is up to which token the loads of m should come up before the deadline, by
// the speed of the tiers. It is sure if that is all, with time to spare.
func (a *assembly) reach(m *stack.FamilyMatch, loads []load, sizes []int64) (tokens int, sure bool) {
	left, t := time.Until(a.job.until).Seconds(), a.tempo()
	tokens = a.family.Skip
	for _, l := range loads {
		if !t.load(l.at, sizes[l.Group]) { // nothing has come from there yet
			return m.Tokens, false
		}
		if t.took > left {
			return tokens, false
		}
		tokens = l.turn
	}
	return m.Tokens, t.took <= inTime*left && !a.job.best
}

// tempo is how long loads take, by the speed of the tiers.
type tempo struct {
	speeds [tier.Places]stack.Speed
	bytes  [tier.Places]int64
	took   float64 // seconds, of all loads together
}

func (a *assembly) tempo() *tempo {
	t := new(tempo)
	for p := tier.Disk; p < tier.Places; p++ {
		t.speeds[p] = a.job.stack.Speed(p)
	}
	return t
}

// load adds the load of a piece from the nearest of some tiers, which takes no time from
// DRAM. It is false where the speed of that tier is not known, which counts as no time.
func (t *tempo) load(at tier.Set, bytes int64) (known bool) {
	if at.Has(tier.CPU) {
		return true
	}
	p := tier.Disk
	for p < tier.Places-1 && !at.Has(p) {
		p++
	}
	s := &t.speeds[p]
	if s.BytesPerSecond == 0 {
		return false
	}
	t.bytes[p] += bytes
	t.took = max(t.took, s.First.Seconds(), float64(t.bytes[p])*float64(1+s.Others)/s.BytesPerSecond)
	return true
}

// sizes is how large the chunks of each group are: as the first that m needs, or as the most
// that they may be where that is not known; nothing of a group of which m needs none.
func (a *assembly) sizes(m *stack.FamilyMatch) []int64 {
	sizes := make([]int64, len(m.Needs))
	for g, need := range m.Needs {
		unknown := int64(arena.MaxPayload)
		if need.From == need.To {
			unknown = 0
		}
		sizes[g] = a.job.sizeAt(&a.family.Chains[g][0], need.From, unknown)
	}
	return sizes
}
