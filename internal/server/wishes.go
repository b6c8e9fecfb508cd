package server

import (
	"cmp"
	"encoding/hex"
	"math"
	"time"

	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

// wishes carries out what clients and orchestrators ask for of prompts that are
// stored, or will be.
type wishes struct {
	server   *Server
	claims   *hint.Claims
	sessions recent // the last prompt of each session
	pauses   *pauses
}

// openRange is a range without an end: chunks stored behind the prompt are retained too.
type openRange struct {
	claimant string
	lasts    time.Duration // 0: they are not
}

// carryOut does what a client wishes for a prompt, in each of its spaces, and adds to
// w's faults the rest. now says that no request for the prompt comes with it. It
// returns how much is retained by it, of the first space.
func (c *reader) carryOut(chains []key.Chain, a *hint.Advice, w *hint.Wishes, now bool) (retained wire.Count) {
	v := &c.server.wishes
	name := cmp.Or(w.Scope, a.Session)
	if a.Session != "" && chains[0].Len() > 0 {
		v.sessions.add(asked{c.uid, sessionName(chains[0].Space, a.Session)}, c.judged.policy, chains)
	}
	if done := a.Measured && a.Hint == policy.Done; done {
		v.done(c.uid, name, chains, now)
	}
	if w.MaxAge > 0 && chains[0].Len() > 0 {
		c.prompts.take(&chains[0]).maxAge = w.MaxAge
	}
	retained = c.retainAll(chains, name, w)
	switch {
	case w.Pause > 0:
		v.pause(chains, w.Pause)
	case w.Prefetch && now:
		v.pauses.add(chains, 0)
	}
	return retained
}

// retainAll retains the ranges that a client wishes for.
func (c *reader) retainAll(chains []key.Chain, name string, w *hint.Wishes) (retained wire.Count) {
	var open *openRange // the last one: it replaces the others for what comes behind
	for i := range w.Retains {
		r := &w.Retains[i]
		if c.ctx.Err() != nil {
			w.Add(r.Said.Fault(wire.CodeClosed, "the connection ends"))
			continue
		}
		from, to, fault := chunksOf(r, &chains[0], w.PromptTokens)
		if fault != nil {
			w.Add(*fault)
			continue
		}
		n, err := c.server.wishes.retain(c.uid, name, chains, from, to, r.For)
		if err != nil {
			w.Add(r.Said.Fault(wire.CodeOverBudget, "%d of %d chunks: %v", n, to-from, err))
		}
		retained.Chunks += uint32(n)
		for _, tokens := range chains[0].Tokens[from : from+n] {
			retained.Tokens += uint64(tokens)
		}
		if r.Output || r.To == 0 {
			open = &openRange{name, r.For}
		}
	}
	if open != nil && chains[0].Len() > 0 {
		c.prompts.take(&chains[0]).open = *open
	}
	return retained
}

// chunksOf are the chunks that a range of a prompt touches. A range that is not of the
// prompt is a fault. The daemon knows a prompt by its whole chunks; up to a chunk
// more may lie behind them.
func chunksOf(r *hint.Retain, c *key.Chain, promptTokens uint64) (from, to int, fault *wire.Fault) {
	total := tokensOf(c, c.Len())
	first, last := r.From, cmp.Or(r.To, math.MaxUint64)
	if r.Output {
		first = cmp.Or(promptTokens, total)
	}
	most := max(total, promptTokens)
	if c.Len() > 0 && promptTokens == 0 {
		most += uint64(c.Tokens[0]) - 1
	}
	if first > most || r.To > most {
		f := r.Said.Fault(wire.CodeTooLarge, "the range from %d to %d is outside the prompt of %d tokens", first, r.To, most)
		return 0, 0, &f
	}
	at := uint64(0)
	for ; from < c.Len() && at+uint64(c.Tokens[from]) <= first; from++ {
		at += uint64(c.Tokens[from])
	}
	for to = from; to < c.Len() && at < last; to++ {
		at += uint64(c.Tokens[to])
	}
	return from, to, nil
}

// tokensOf is how many tokens the first n chunks have.
func tokensOf(c *key.Chain, n int) (tokens uint64) {
	for _, t := range c.Tokens[:n] {
		tokens += uint64(t)
	}
	return tokens
}

// sessionName is a session among the names of prompts: it counts in its space.
func sessionName(space key.SpaceID, session string) string {
	return hex.EncodeToString(space[:]) + " " + session
}

// done lets the end of a conversation that is its alone go first, and ends what its
// claimant retains. Where a request for it is under way its end does the former.
func (v *wishes) done(uid uint32, name string, chains []key.Chain, now bool) {
	for i := range chains {
		if name != "" {
			v.claims.ReleaseAll(hint.Claimant{UID: uid, Space: chains[i].Space, Name: name})
		}
		if now {
			v.server.o.Stack.MarkCold(&chains[i])
		}
	}
}

// retain claims chunks from..to of a prompt in all its spaces, as many of the first
// as may be in each. For no time it releases them.
func (v *wishes) retain(uid uint32, name string, chains []key.Chain, from, to int, d time.Duration) (n int, err error) {
	n = to - from
	for i := range chains {
		c := &chains[i]
		by, hs := hint.Claimant{UID: uid, Space: c.Space, Name: name}, c.Hashes[from:from+n]
		if d == 0 {
			v.claims.Release(by, hs)
		} else if done, over := v.claims.Retain(by, hs, v.server.o.Stack.SizesOf(c, from, from+n), d); over != nil {
			n, err = done, over
		}
	}
	if d == 0 {
		return 0, nil
	}
	return n, err
}

// stored retains chunks from..to of a chain, which were stored behind a prompt whose
// client wished for that.
func (v *wishes) stored(uid uint32, said *promptRecord, c *key.Chain, from, to int) {
	o := &said.open
	if from = max(from, said.n); from >= to || o.lasts == 0 {
		return
	}
	_, _ = v.retain(uid, o.claimant, []key.Chain{*c}, from, to, o.lasts) // beyond the budget it is not
}

// pause lets a conversation that rests go to a tier below, and has it promoted before
// it goes on, twice as long before as that should take. A rest that is too short for
// that changes nothing.
func (v *wishes) pause(chains []key.Chain, rest time.Duration) {
	lead := v.leadTime(chains)
	if rest <= lead {
		return
	}
	for i := range chains {
		v.server.o.Stack.Cool(&chains[i])
	}
	v.pauses.add(chains, rest-lead)
}

// leadTime is twice the time that loading a prompt takes from the nearest tier below DRAM, at
// the speed that was measured; an unmeasured one counts as 100 MB/s.
func (v *wishes) leadTime(chains []key.Chain) time.Duration {
	const unmeasured, safety = 100e6, 2
	for p := tier.CPU + 1; p < tier.Places; p++ {
		if s := v.server.o.Stack.Speed(p); s.ChunkBytes > 0 {
			bytes := float64(s.ChunkBytes) * float64(len(chains)*chains[0].Len())
			return safety * (s.First + time.Duration(bytes/cmp.Or(s.BytesPerSecond, unmeasured)*float64(time.Second)))
		}
	}
	return math.MaxInt64
}

// handleHint takes what a client says of a prompt without asking for it.
func handleHint(c *reader, h wire.Header, req wire.HintRequest) (wire.Message, error) {
	a, w := hint.Read(req.Configs)
	chains, err := hinted(c, &req, a.Session)
	if err != nil {
		return nil, err
	}
	c.prompts.advise(chains, a)
	reply := wire.HintReply{Retained: c.carryOut(chains, &a, &w, true), Faults: w.Faults}
	return &reply, nil
}

// hinted is the prompt that a hint is about, in each of its spaces.
func hinted(c *reader, req *wire.HintRequest, session string) ([]key.Chain, error) {
	switch {
	case req.LookupID != "":
		return named(c, req.LookupID)
	case req.Chain.Form == wire.FormNone:
		return lastOf(c, req.Chain.Space, session)
	}
	chain := make([]key.Chain, 1)
	if err := c.chain(&chain[0], &req.Chain); err != nil {
		return nil, err
	}
	return c.ranked(chain, req.Ranks)
}

// named is the prompt that this user asked for under a lookup id.
func named(c *reader, lookupID string) ([]key.Chain, error) {
	chains := c.server.recent.get(asked{c.uid, lookupID}, c.judged.policy)
	if chains == nil {
		return nil, refuse(wire.CodeNotFound, "nothing was prefetched as %.80q, or too long ago; send the prompt", lookupID)
	}
	return chains, nil
}

// lastOf is the last prompt of a session of this user in a space.
func lastOf(c *reader, handle uint32, session string) ([]key.Chain, error) {
	if session == "" {
		return nil, refuse(wire.CodeBadRequest, "neither a chain, nor a lookup id, nor a session is given")
	}
	sp, err := c.space(handle)
	if err != nil {
		return nil, err
	}
	chains := c.server.wishes.sessions.get(asked{c.uid, sessionName(sp.info.ID, session)}, c.judged.policy)
	if chains == nil {
		return nil, refuse(wire.CodeNotFound, "nothing is known of session %.80q in this space, or not any more; send the prompt", session)
	}
	return chains, nil
}
