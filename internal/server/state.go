package server

import (
	"errors"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/prefetch"
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
	return j.describe(from, !j.session.pushes)
}

// firstState is the state in the reply that makes the job.
func (j *job) firstState() wire.JobState {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.describe(0, true)
}

// describe is called with the mutex held. It marks the refs as sent if told to.
func (j *job) describe(from uint32, mark bool) wire.JobState {
	s := wire.JobState{Done: j.mu.done}
	s.Reason, s.FailedTier = j.reason()
	for p := range s.Tiers {
		s.Tiers[p] = countOf(j.mu.in[p])
	}
	if j.mu.ended { // nothing more will be sent
		s.First, s.Ready = uint32(j.mu.sent), j.firstTokens(j.mu.sent)
		return s
	}
	s.Ready = wire.Count{Chunks: uint32(j.ready()), Tokens: j.mu.tokens}
	first := int(min(from, uint32(j.ready())))
	if from == wire.FromUnsent {
		first = j.mu.sent
	}
	s.First = uint32(first)
	ready, ranks := j.ready(), j.ranks()
	s.Refs = make(wire.Refs, 0, 24*ranks*(ready-first))
	for i, r := range j.mu.refs[first*ranks : ready*ranks] {
		s.Refs = s.Refs.Add(wire.Ref{
			Offset: uint64(r.Block.Offset()), Sum: r.Block.Sum(),
			Length: uint32(r.Block.Len()), Tokens: j.chain.Tokens[j.chain.Skip+first+i/ranks],
		})
	}
	if mark {
		j.mu.sent = ready
	}
	return s
}

// firstTokens counts the first n chunks.
func (j *job) firstTokens(n int) wire.Count {
	c := wire.Count{Chunks: uint32(n)}
	for _, t := range j.chain.Tokens[j.chain.Skip:][:n] {
		c.Tokens += uint64(t)
	}
	return c
}

// reason says why the job is as short as it is; called with the mutex held.
func (j *job) reason() (wire.Reason, string) {
	switch {
	case j.mu.revoked:
		return wire.ReasonRevoked, ""
	case !j.mu.done:
		return wire.ReasonRunning, ""
	}
	return reasonOf(j.mu.err)
}

// reasonOf names the error that made a prefix or a reservation short.
func reasonOf(err error) (wire.Reason, string) {
	var failed *stack.LoadError
	switch {
	case err == nil:
		return wire.ReasonComplete, ""
	case errors.Is(err, prefetch.ErrDeadline):
		return wire.ReasonDeadline, ""
	case errors.Is(err, prefetch.ErrCancelled):
		return wire.ReasonCancelled, ""
	case errors.Is(err, tier.ErrOverBudget), errors.Is(err, ledger.ErrOverBudget):
		return wire.ReasonOverBudget, ""
	case errors.Is(err, tier.ErrOverQuota):
		return wire.ReasonOverQuota, ""
	case errors.Is(err, tier.ErrNoSpace), errors.Is(err, ledger.ErrBusy):
		return wire.ReasonNoSpace, ""
	case errors.Is(err, tier.ErrCorrupt):
		return wire.ReasonCorrupt, ""
	case errors.Is(err, tier.ErrNotFound):
		return wire.ReasonGap, ""
	case errors.Is(err, tier.ErrClosed):
		return wire.ReasonClosed, ""
	case errors.As(err, &failed):
		return wire.ReasonFailed, failed.Place.String()
	}
	return wire.ReasonFailed, ""
}

// appendPush appends a push of what the client does not know yet, or nothing
// if the client has ended the job: the reply to that was the last word.
func (j *job) appendPush(dst []byte) []byte {
	j.mu.Lock()
	if j.mu.silent {
		j.mu.Unlock()
		return dst
	}
	s := j.describe(wire.FromUnsent, true)
	j.mu.Unlock()
	j.session.server.count.pushes.Add(1)
	return wire.AppendPush(dst, wire.OpPrefetch, j.id, &s)
}
