package server

import (
	"errors"
	"time"

	"github.com/kvstored/kvstored/internal/missing"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// shortfall is what a job asked for beyond what it could get, and why.
type shortfall struct {
	asked  uint64 // tokens of the prompt behind the skipped chunks
	found  uint64 // of these, tokens of the match
	behind missing.Absence
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
func (g *group) why(i int) missing.Absence {
	for r := range g.chains {
		if a := g.stack.Why(&g.chains[r], i, g.search); a.Reason != missing.Nothing {
			return a
		}
	}
	if i < g.chains[0].Len() { // it came between the match and this look
		return missing.Because(missing.Pending)
	}
	return missing.None
}

// whyFamily is why a match of a hybrid model ended.
func (g *group) whyFamily(f *stack.Family, m *stack.FamilyMatch) missing.Absence {
	if m.Tokens < m.Run && f.Groups.OnlyStates() {
		return g.why(m.Run/f.Groups[0].Chunk - 1)
	}
	if m.Tokens < m.Run {
		return missing.Because(missing.Group)
	}
	return g.why(m.Run / f.Groups[0].Chunk)
}

// shortfallOf is that of a job of whose prompt so many tokens were found, and why not more.
func shortfallOf(j *job, began time.Time, found uint64, behind missing.Absence) shortfall {
	if j.unasked != nil && behind.Reason == missing.NeverStored {
		behind = missing.Absence{Reason: missing.TierOff, Tier: uint8(tier.Remote)}
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
		if s.behind = j.why(j.skip() + j.mu.endedAt); s.behind.Reason == missing.Pending {
			s.behind = missing.Because(missing.NeverStored) // then; its client has stored it since
		}
		first = s.behind
	}
	late := uint64(0)
	if got < s.found && first.Reason == missing.Timeout {
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

// whyShort is why a job that has ended has less than was found.
func whyShort(j *job) missing.Absence {
	var failed *stack.LoadError
	a := missing.None
	if errors.As(j.mu.err, &failed) {
		a.Tier = uint8(failed.Place)
	}
	code, _ := j.code()
	switch code {
	case wire.CodeOK:
		a.Reason = missing.Advised
	case wire.CodeTimeout:
		a.Reason = missing.Timeout
	case wire.CodeCancelled, wire.CodeClosed:
		a.Reason = missing.Cancelled
	case wire.CodeRevoked:
		a.Reason = missing.Revoked
	case wire.CodeOverBudget, wire.CodeOverQuota:
		a.Reason = missing.OverBudget
	case wire.CodeNoSpace:
		a.Reason = missing.NoSpace
	case wire.CodeCorrupt:
		a.Reason = missing.Corrupt
	case wire.CodeGap:
		a.Reason = missing.Gap
	default:
		a.Reason = missing.Failed
		if errors.Is(j.mu.err, tier.ErrOff) {
			a.Reason = missing.TierOff
		}
	}
	return a
}
