package server

import "github.com/kvstored/kvstored/internal/wire"

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
	ready, ranks := j.ready(), j.ranks()
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
	s.Refs = make(wire.Refs, 0, refBytes*ranks*(ready-first))
	for i, r := range j.mu.refs[first*ranks : ready*ranks] {
		s.Refs = s.Refs.Add(wire.Ref{
			Offset: uint64(r.Block.Offset()), Sum: r.Block.Sum(), Length: uint32(r.Block.Len()), Tokens: j.tokensOf(first + i/ranks),
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
	return max(0, (bytes-stateBytes)/(refBytes*j.ranks()))
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
	return j.chain.Tokens[j.skip()+i]
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
