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
// which not all fits into so many bytes is told of as one that still runs.
func (j *job) describe(from uint32, mark bool, bytes int) wire.JobState {
	if j.family != nil {
		return j.family.describe(from, mark, bytes)
	}
	var s wire.JobState
	s.Code, s.FailedTier = j.code()
	for p := range s.Tiers {
		s.Tiers[p] = countOf(j.mu.in[p])
	}
	if j.mu.ended { // nothing more will be sent
		s.First, s.Ready = uint32(j.mu.sent), j.firstTokens(j.mu.sent)
		return s
	}
	first := int(min(from, uint32(j.ready())))
	if from == wire.FromUnsent {
		first = j.mu.sent
	}
	s.First = uint32(first)
	ready, ranks := j.ready(), j.ranks()
	s.Ready = wire.Count{Chunks: uint32(ready), Tokens: j.mu.tokens}
	if most := max(0, (bytes-stateBytes)/(24*ranks)); ready-first > most {
		ready = first + most
		s.Ready, s.Code, s.FailedTier = j.firstTokens(ready), wire.CodeRunning, 0
	}
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

// endOf names the error that made a prefix or a reservation short.
func endOf(err error) (wire.Code, wire.Tiers) {
	var failed *stack.LoadError
	switch {
	case err == nil:
		return wire.CodeOK, 0
	case errors.Is(err, prefetch.ErrDeadline):
		return wire.CodeTimeout, 0
	case errors.Is(err, prefetch.ErrCancelled):
		return wire.CodeCancelled, 0
	case errors.Is(err, tier.ErrOverBudget), errors.Is(err, ledger.ErrOverBudget):
		return wire.CodeOverBudget, 0
	case errors.Is(err, tier.ErrOverQuota):
		return wire.CodeOverQuota, 0
	case errors.Is(err, stack.ErrNotAdmitted):
		return wire.CodeDeclined, 0
	case errors.Is(err, tier.ErrNoSpace), errors.Is(err, ledger.ErrBusy):
		return wire.CodeNoSpace, 0
	case errors.Is(err, tier.ErrCorrupt):
		return wire.CodeCorrupt, 0
	case errors.Is(err, tier.ErrNotFound):
		return wire.CodeGap, 0
	case errors.Is(err, tier.ErrClosed):
		return wire.CodeClosed, 0
	case errors.As(err, &failed):
		return wire.CodeFailed, wire.Tiers(tier.Of(failed.Place))
	}
	return wire.CodeFailed, 0
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
