package server

import (
	"errors"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/prefetch"
	"github.com/kvstored/kvstored/tier"
)

// state describes the job, with the refs from chunk number from on, or with
// those not yet sent. The refs returned count as sent.
func (j *job) state(from uint32) wire.JobState {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := wire.JobState{Done: j.mu.done}
	s.Reason, s.FailedTier = j.reason()
	for p, n := range j.mu.in {
		s.Tiers[p] = countOf(n)
	}
	if j.mu.ended { // nothing more will be sent
		s.First, s.Ready = uint32(j.mu.sent), j.firstTokens(j.mu.sent)
		return s
	}
	s.Ready = wire.Count{Chunks: uint32(len(j.mu.refs)), Tokens: j.mu.tokens}
	first := int(min(from, uint32(len(j.mu.refs))))
	if from == wire.FromUnsent {
		first = j.mu.sent
	}
	s.First = uint32(first)
	s.Refs = make(wire.Refs, 0, 24*(len(j.mu.refs)-first))
	for i, r := range j.mu.refs[first:] {
		s.Refs = s.Refs.Add(wire.Ref{
			Offset: uint64(r.Block.Offset()), Sum: r.Block.Sum(),
			Length: uint32(r.Block.Len()), Tokens: j.chain.Tokens[j.chain.Skip+first+i],
		})
	}
	j.mu.sent = len(j.mu.refs)
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
	if j.mu.ended {
		return j.mu.reason, ""
	}
	if !j.mu.done {
		return wire.ReasonRunning, ""
	}
	return reasonOf(j.mu.err)
}

// reasonOf names the error that made a prefix or a reservation short.
func reasonOf(err error) (wire.Reason, string) {
	var failed *tier.LoadError
	switch {
	case err == nil:
		return wire.ReasonComplete, ""
	case errors.Is(err, prefetch.ErrDeadline):
		return wire.ReasonDeadline, ""
	case errors.Is(err, prefetch.ErrCancelled):
		return wire.ReasonCancelled, ""
	case errors.Is(err, tier.ErrOverBudget), errors.Is(err, ledger.ErrOverBudget):
		return wire.ReasonOverBudget, ""
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

// appendPush appends a push of what the client does not know yet.
func (j *job) appendPush(dst []byte) []byte {
	j.mu.Lock()
	over := j.mu.ended
	j.mu.Unlock()
	if over {
		return dst // the reply to cancel or release was the last word
	}
	s := j.state(wire.FromUnsent)
	j.session.server.count.pushes.Add(1)
	return wire.AppendPush(dst, wire.OpPrefetch, j.id, &s)
}
