package server

import (
	"errors"
	"time"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// shortfall is the part of a prompt that a job did not get, and why.
type shortfall struct {
	asked  uint64 // tokens of the prompt behind the skipped chunks
	found  uint64 // of these, tokens of the match
	behind explain.Absence
	name   asked // the lookup id of the prompt, if it has one
	since  time.Time
	took   time.Duration // until the prefix would not grow any more; 0 while it may
}

// settled notes that the prefix of the job will not grow any more. It is called once,
// with the job's mutex held or before the job is shared.
func (s *shortfall) settled(j *job) {
	s.took = max(1, time.Since(s.since))
	far, some := tier.CPU, false
	for p := range j.mu.in {
		if j.mu.in[p].Chunks > 0 {
			far, some = tier.Place(p), true
		}
	}
	if ready := j.session.server.o.Ready; ready != nil && some {
		ready(far, s.took)
	}
}

// why is why chunk i, which the match of the group ended at, is not there.
func (g *group) why(i int) explain.Absence {
	for r := range g.chains {
		if a := g.stack.Why(&g.chains[r], i, g.search); a.Reason != explain.Nothing {
			return a
		}
	}
	if i < g.chains[0].Len() { // it came between the match and this look
		return explain.Because(explain.Pending)
	}
	return explain.None
}

// shortfallOf is that of a job of whose prompt so many tokens were found, and why not more.
func shortfallOf(j *job, began time.Time, found uint64, behind explain.Absence) shortfall {
	if j.unasked != nil && behind.Reason == explain.NeverStored {
		behind = explain.Absence{Reason: explain.TierOff, Tier: uint8(tier.Remote)}
	}
	s := shortfall{asked: j.behind(0), found: found, behind: behind, since: began}
	j.session.server.model(j.chain.Space).asked.Add(s.asked)
	return s
}

// count counts the tokens that the prompt has beyond the final prefix of its job, which
// has ended, by why it is not longer.
func (s *shortfall) count(j *job) {
	got := uint64(0)
	for p := range j.mu.in {
		got += j.mu.in[p].Tokens
	}
	count, first := &j.session.server.count.missed, s.behind
	if got < s.found {
		first = whyShort(j)
		count.Add(&first, s.found-got)
	}
	if got > s.found { // a shared tier had more than was known
		if s.behind = j.why(j.skip() + j.mu.endedAt); s.behind.Reason == explain.Pending {
			s.behind = explain.Because(explain.NeverStored) // then; its client has stored it since
		}
		first = s.behind
	}
	late := uint64(0)
	if got < s.found && first.Reason == explain.Timeout {
		late = s.found - got
	}
	j.session.server.lateness.log(&j.session.log, s, j.chain.Space[:], late)
	if left := max(got, s.found); left < s.asked {
		count.Add(&s.behind, s.asked-left)
	}
	if s.name.lookupID != "" {
		j.session.server.recent.ended(s.name, outcome{first, s.asked, got})
	}
	if e := j.session.log.Debug(); e.Enabled() {
		e.Hex("space", j.chain.Space[:]).Str("lookup_id", s.name.lookupID).Uint64("tokens", s.asked).Uint64("found", s.found).Uint64("had", got).
			Uint64("cpu", j.mu.in[tier.CPU].Tokens).Uint64("disk", j.mu.in[tier.Disk].Tokens).Uint64("remote", j.mu.in[tier.Remote].Tokens).
			Dur("ready_after", s.took).Dur("held", time.Since(s.since)).Str("missing", first.Name()).Str("tier", first.TierName()).Msg("prefetch")
	}
}

// shortReasons are why jobs that have ended have less than was found, by their codes.
var shortReasons = map[wire.Code]explain.Reason{
	wire.CodeOK:         explain.Advised,
	wire.CodeTimeout:    explain.Timeout,
	wire.CodeCancelled:  explain.Cancelled,
	wire.CodeClosed:     explain.Cancelled,
	wire.CodeRevoked:    explain.Revoked,
	wire.CodeOverBudget: explain.OverBudget,
	wire.CodeOverQuota:  explain.OverBudget,
	wire.CodeNoSpace:    explain.NoSpace,
	wire.CodeCorrupt:    explain.Corrupt,
	wire.CodeGap:        explain.Gap,
}

// whyShort is why a job that has ended has less than was found.
func whyShort(j *job) explain.Absence {
	a := explain.None
	if failed := (*stack.LoadError)(nil); errors.As(j.mu.err, &failed) {
		a.Tier = uint8(failed.Place)
	}
	code, _ := j.code()
	reason, known := shortReasons[code]
	switch {
	case known:
		a.Reason = reason
	case errors.Is(j.mu.err, tier.ErrOff):
		a.Reason = explain.TierOff
	default:
		a.Reason = explain.Failed
	}
	return a
}
