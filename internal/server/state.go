package server

import (
	"errors"
	"time"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// state describes the job, with the refs from chunk number from on, or with
// those not yet sent. It is the body of an answer to wait or cancel.
//
// Where there are pushes, the refs count as sent only by them: an answer may be
// overtaken by a push, which must not leave out the refs in the answer.
func (j *job) state(from uint32) wire.JobState {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.describe(from, !j.session.pushes, j.session.maxReply)
}

// firstState is the state in the reply that makes the job, of which bytes may be about
// its refs.
func (j *job) firstState(bytes int) wire.JobState {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.describe(0, true, bytes)
}

// stateBytes is more than what a state, and what stands around it, has besides refs.
const stateBytes = 1 << 10

// describe is called with the mutex held. It marks the refs as sent if told to. A job of
// which not all fits into so many bytes is told of as one that still runs. Refs of a
// hybrid model are counted one by one.
func (j *job) describe(from uint32, mark bool, bytes int) (s wire.JobState) {
	s.Code, s.FailedTier = j.code()
	for p := range s.Tiers {
		s.Tiers[p] = countOf(j.mu.in[p])
	}
	if j.mu.ended { // nothing more will be sent
		s.First, s.Ready = uint32(j.mu.sent), j.readyOf(j.mu.sent)
		return s
	}
	ready, stride := j.ready(), j.stride()
	first := int(min(from, uint32(ready)))
	if from == wire.FromUnsent {
		first = j.mu.sent
	}
	s.First = uint32(first)
	if most := j.fit(bytes); ready-first > most {
		ready, s.Code, s.FailedTier = first+most, wire.CodeRunning, 0
	}
	if s.Ready = j.readyOf(ready); j.whole != nil && s.Code != wire.CodeRunning {
		s.Needs = j.whole.needs
	}
	s.Refs = make(wire.Refs, 0, refBytes*stride*(ready-first))
	for i, r := range j.mu.refs[first*stride : ready*stride] {
		s.Refs = s.Refs.Add(wire.Ref{
			Offset: uint64(r.Block.Offset()), Sum: r.Block.Sum(), Length: uint32(r.Block.Len()), Tokens: j.tokensOf(first + i/stride),
		})
	}
	if mark {
		j.mu.sent = ready
	}
	return s
}

// refBytes is what a ref takes in a state.
const refBytes = 24

// fit is the refs of how many chunks have room in so many bytes.
func (j *job) fit(bytes int) int {
	if j.whole != nil {
		return max(1, (bytes-stateBytes-len(j.whole.needs))/refBytes)
	}
	return max(0, (bytes-stateBytes)/(refBytes*j.stride()))
}

// readyOf is what a client can read that was sent the refs of the first n chunks. All that a
// length of a hybrid model needs is ready at once.
func (j *job) readyOf(n int) wire.Count {
	switch {
	case j.whole == nil && !j.mu.ended && n == j.ready():
		return wire.Count{Chunks: uint32(n), Tokens: j.mu.tokens}
	case j.whole == nil:
		return j.firstTokens(n)
	case n == len(j.whole.tokens):
		return wire.Count{Chunks: uint32(j.chunks()), Tokens: j.mu.tokens}
	}
	return wire.Count{}
}

// tokensOf is the tokens in chunk i of the prefix; of a hybrid model in that of ref i.
func (j *job) tokensOf(i int) uint32 {
	if j.whole != nil {
		return j.whole.tokens[i]
	}
	return j.prompt.chain().Tokens[j.prompt.skip()+i]
}

// firstTokens counts the first n chunks.
func (j *job) firstTokens(n int) wire.Count {
	return wire.Count{Chunks: uint32(n), Tokens: j.prompt.chain().TokensIn(j.prompt.skip(), j.prompt.skip()+n)}
}

// code says why the job is as short as it is; called with the mutex held.
func (j *job) code() (wire.Code, wire.Tiers) {
	switch {
	case j.mu.revoked:
		return wire.CodeRevoked, 0
	case !j.mu.done:
		return wire.CodeRunning, 0
	}
	return endOf(j.mu.err)
}

// appendPush appends a push of what the client does not know yet, or nothing
// if the client has ended the job: the reply to that was the last word. more says that
// not all of it did fit.
func (j *job) appendPush(dst []byte) (frame []byte, more bool) {
	j.mu.Lock()
	if j.mu.silent {
		j.mu.Unlock()
		return dst, false
	}
	s := j.describe(wire.FromUnsent, true, j.session.maxReply)
	more = !j.mu.ended && j.mu.sent < j.ready()
	j.mu.Unlock()
	j.session.server.count.pushes.Add(1)
	return wire.AppendPush(dst, wire.OpPrefetch, j.id, &s), more
}

// missed is the part of a prompt that a job did not get, and why.
type missed struct {
	asked  uint64 // tokens of the prompt behind the skipped chunks
	found  uint64 // of these, tokens of the match
	behind explain.Absence
	name   asked // the lookup id of the prompt, if it has one
	since  time.Time
	took   time.Duration // until the prefix would not grow any more; 0 while it may
}

// settled notes that the prefix of the job will not grow any more. It is called once,
// with the job's mutex held or before the job is shared.
func (s *missed) settled(j *job) {
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

// lacks is why what the full groups have from chunk i of the first on is not there; where
// states lack at the end of the run, before that chunk, why these do.
func (p *prompt) lacks(i int) explain.Absence {
	states := p.Groups.OnlyStates() && p.plan.End < p.plan.Run
	for g, group := range p.Groups {
		from, to := i, i+1
		switch start := i * p.Groups[0].Chunk; {
		case states:
			from, to = start/group.Chunk-1, start/group.Chunk
		case !p.IsPlain(): // what is lacking lies in the step of the grid that begins there
			from, to = start/group.Chunk, (start+p.Groups.Grid())/group.Chunk
		}
		for ; from < to && (group.Kind == index.Full || p.Groups.OnlyStates()); from++ {
			for r := range p.Chains[g] {
				if a := p.store.Lookups.Why(&p.Chains[g][r], from, p.search); a.Reason != explain.Nothing {
					return a
				}
			}
		}
	}
	if states || i < p.chain().Len() { // it came between the match and this look
		return explain.Because(explain.Pending)
	}
	return explain.None
}

// missedOf is that of a job of whose prompt so many tokens were found, and why not more.
func missedOf(j *job, began time.Time, found uint64, behind explain.Absence) missed {
	if j.prompt.unsearched != nil && behind.Reason == explain.NeverStored {
		behind = explain.Absence{Reason: explain.TierOff, Tier: uint8(tier.Remote)}
	}
	s := missed{asked: j.behind(0), found: found, behind: behind, since: began}
	j.session.server.model(j.prompt.chain().Space).asked.Add(s.asked)
	return s
}

// count counts the tokens that the prompt has beyond the final prefix of its job, which
// has ended, by why it is not longer.
func (s *missed) count(j *job) {
	got := uint64(0)
	for p := range j.mu.in {
		got += j.mu.in[p].Tokens
	}
	count, first := &j.session.server.count.missed, s.behind
	if got < s.found {
		code, _ := j.code()
		first = whyShort(code, j.mu.err)
		count.Add(&first, s.found-got)
	}
	if got > s.found { // a shared tier had more than was known
		if s.behind = j.prompt.lacks(j.prompt.skip() + j.mu.endedAt); s.behind.Reason == explain.Pending {
			s.behind = explain.Because(explain.NeverStored) // then; its client has stored it since
		}
		first = s.behind
	}
	late := uint64(0)
	if got < s.found && first.Reason == explain.Timeout {
		late = s.found - got
	}
	j.session.server.deadlines.log(&j.session.log, s, j.prompt.chain().Space[:], late)
	if left := max(got, s.found); left < s.asked {
		count.Add(&s.behind, s.asked-left)
	}
	if s.name.lookupID != "" {
		j.session.server.recent.ended(s.name, outcome{first, s.asked, got})
	}
	if e := j.session.log.Debug(); e.Enabled() {
		e.Hex("space", j.prompt.chain().Space[:]).Str("lookup_id", s.name.lookupID).Uint64("tokens", s.asked).Uint64("found", s.found).Uint64("had", got).
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

// whyShort is why loading that ended with a code, by an error, has less than was found.
func whyShort(code wire.Code, err error) explain.Absence {
	a := explain.None
	if failed := (*store.LoadError)(nil); errors.As(err, &failed) {
		a.Tier = uint8(failed.Place)
	}
	reason, known := shortReasons[code]
	switch {
	case known:
		a.Reason = reason
	case errors.Is(err, tier.ErrOff):
		a.Reason = explain.TierOff
	default:
		a.Reason = explain.Failed
	}
	return a
}
