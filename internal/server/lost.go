package server

import (
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/tier"
)

// lostReason is why what a group needs was not there.
type lostReason uint8

const (
	lostNever   lostReason = iota // it was not stored, as far as is known
	lostEvicted                   // it was stored, and has gone
	lostLate                      // it was not up at the deadline
	lostReasons
)

var lostNames = [lostReasons]string{"never", "evicted", "late"}

// lostCounts are tokens of prompts of hybrid models that the full groups had, or were to be
// brought up, and that could not be used, by the kind of the group that cut them off.
type lostCounts [index.State + 1][lostReasons]atomic.Uint64

// Lost is one of these counts.
type Lost struct {
	Group  string `json:"group"`
	Reason string `json:"reason"`
	Tokens uint64 `json:"tokens"`
}

// read is a snapshot of those that are not 0.
func (c *lostCounts) read() (out []Lost) {
	for kind := range c {
		for reason := range c[kind] {
			if n := c[kind][reason].Load(); n > 0 {
				out = append(out, Lost{index.Kind(kind).String(), lostNames[reason], n})
			}
		}
	}
	return out
}

// cut counts what a match lost to the first group that lacks something at the end of the run.
func (c *lostCounts) cut(s *stack.Stack, f *stack.Family, m *stack.FamilyMatch, search tier.Set) {
	if m.Tokens >= m.Run || f.Groups.OnlyStates() { // without a full group nothing was there
		return
	}
	for g, group := range f.Groups {
		if m.Lacks>>g&1 == 1 {
			c[group.Kind][whyLost(s, f, g, m.Run, search)].Add(uint64(m.Run - m.Tokens))
			return
		}
	}
}

// whyLost is why a prefix of n tokens lacks something of group g: the last chunk that is missing says it.
func whyLost(s *stack.Stack, f *stack.Family, g, n int, search tier.Set) lostReason {
	from, to := f.Groups[g].Needs(f.Skip, n)
	for i := to - 1; i >= from; i-- {
		for r := range f.Chains[g] {
			switch s.Why(&f.Chains[g][r], i, search).Reason {
			case explain.Nothing:
			case explain.NeverStored, explain.OtherSpace, explain.Pending, explain.Scanning:
				return lostNever
			default:
				return lostEvicted
			}
		}
	}
	return lostNever
}

// countLate counts what a job lost at its deadline: the group of the first piece that was not up.
func (a *assembly) countLate(m *stack.FamilyMatch) {
	if a.lateFor != nil && m.Tokens < a.aim.Tokens {
		a.job.session.server.count.lost[*a.lateFor][lostLate].Add(uint64(a.aim.Tokens - m.Tokens))
	}
}
