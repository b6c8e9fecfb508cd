package server

import (
	"cmp"
	"context"
	"encoding/hex"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

// hints carries out what clients and orchestrators ask for of prompts that are
// stored, or will be.
type hints struct {
	server   *Server
	claims   *hint.Claims
	sessions recent // the last prompt of each session
	pauses   pauses
}

// openRange is a range without an end: chunks stored behind the prompt are retained too.
type openRange struct {
	claimant string
	lasts    time.Duration // 0: they are not
}

// carryOut does what a client wishes for a prompt, in each of its spaces, and adds to
// w's faults the rest. now says that no request for the prompt comes with it. It
// returns how much is retained by it, of the first space.
func (c *reader) carryOut(chains []key.Chain, a *hint.Advice, w *hint.Actions, now bool) (retained wire.Count) {
	v := &c.server.hints
	name := cmp.Or(w.Scope, a.Session)
	if a.Session != "" && chains[0].Len() > 0 {
		v.sessions.add(asked{c.session.uid, sessionName(chains[0].Space, a.Session)}, c.rights.policy, chains)
	}
	if done := a.Measured && a.Hint == policy.Done; done {
		v.done(c.session.uid, name, chains, now)
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
func (c *reader) retainAll(chains []key.Chain, name string, w *hint.Actions) (retained wire.Count) {
	var open *openRange // the last one: it replaces the others for what comes behind
	for i := range w.Retains {
		r := &w.Retains[i]
		if c.session.ctx.Err() != nil {
			w.Add(r.Said.Fault(wire.CodeClosed, "the connection ends"))
			continue
		}
		from, to, fault := chunksOf(r, &chains[0], w.PromptTokens)
		if fault != nil {
			w.Add(*fault)
			continue
		}
		n, err := c.server.hints.retain(c.session.uid, name, chains, from, to, r.For)
		if err != nil {
			w.Add(r.Said.Fault(wire.CodeOverBudget, "%d of %d chunks: %v", n, to-from, err))
		}
		retained.Chunks += uint32(n)
		retained.Tokens += chains[0].TokensIn(from, from+n)
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
	total := c.TokensIn(0, c.Len())
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

// sessionName is a session among the names of prompts: it counts in its space.
func sessionName(space key.SpaceID, session string) string {
	return hex.EncodeToString(space[:]) + " " + session
}

// done lets the end of a conversation that is its alone go first, and ends what its
// claimant retains. Where a request for it is under way its end does the former.
func (v *hints) done(uid uint32, name string, chains []key.Chain, now bool) {
	for i := range chains {
		if name != "" {
			v.claims.ReleaseAll(hint.Claimant{UID: uid, Space: chains[i].Space, Name: name})
		}
		if now {
			v.server.o.Store.Planning.MarkCold(&chains[i])
		}
	}
}

// retain claims chunks from..to of a prompt in all its spaces, as many of the first
// as may be in each. For no time it releases them.
func (v *hints) retain(uid uint32, name string, chains []key.Chain, from, to int, d time.Duration) (n int, err error) {
	n = to - from
	for i := range chains {
		c := &chains[i]
		first, last := sameTokens(&chains[0], c, from, from+n)
		by, hs := hint.Claimant{UID: uid, Space: c.Space, Name: name}, c.Hashes[first:last]
		if d == 0 {
			v.claims.Release(by, hs)
		} else if done, over := v.claims.Retain(by, hs, v.server.o.Store.Planning.SizesOf(c, first, last), d); over != nil {
			n, err = max(0, (first+done)*int(c.Tokens[0])/int(chains[0].Tokens[0])-from), over
		}
	}
	if d == 0 {
		return 0, nil
	}
	return n, err
}

// sameTokens are the chunks of c that have the tokens of chunks from..to of another full group
// of its prompt.
func sameTokens(of, c *key.Chain, from, to int) (first, last int) {
	if from == to || c.Len() == 0 {
		return 0, 0
	}
	each, own := int(of.Tokens[0]), int(c.Tokens[0])
	last = min((to*each+own-1)/own, c.Len())
	return min(from*each/own, last), last
}

// stored retains chunks from..to of a chain, which were stored behind a prompt whose
// client wished for that.
func (v *hints) stored(uid uint32, said *promptRecord, c *key.Chain, from, to int) {
	o := &said.open
	if from = max(from, said.n); from >= to || o.lasts == 0 {
		return
	}
	_, _ = v.retain(uid, o.claimant, []key.Chain{*c}, from, to, o.lasts) // beyond the budget it is not
}

// pause lets a conversation that rests go to a tier below, and has it promoted before
// it goes on, twice as long before as that should take. A rest that is too short for
// that changes nothing.
func (v *hints) pause(chains []key.Chain, rest time.Duration) {
	lead := v.leadTime(chains)
	if rest <= lead {
		return
	}
	for i := range chains {
		v.server.o.Store.Planning.Cool(&chains[i])
	}
	v.pauses.add(chains, rest-lead)
}

// leadTime is twice the time that loading a prompt takes from the nearest tier below DRAM, at
// the speed that was measured; an unmeasured one counts as 100 MB/s.
func (v *hints) leadTime(chains []key.Chain) time.Duration {
	const unmeasured, safety = 100e6, 2
	chunks := 0
	for i := range chains {
		chunks += chains[i].Len()
	}
	for p := tier.CPU + 1; p < tier.Places; p++ {
		if s := v.server.o.Store.Loader.Speed(p); s.ChunkBytes > 0 {
			bytes := float64(s.ChunkBytes) * float64(chunks)
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
	if req.LookupID == "" && req.Chain.Form == wire.FormNone {
		return lastOf(c, req.Chain.Space, session)
	}
	chains, err := named(c, req.LookupID, &req.Chain)
	if err != nil || req.LookupID != "" { // it has its ranks
		return chains, err
	}
	return c.resolver.ranked(chains, req.Ranks)
}

// named is the prompt that this user asked for under a lookup id; without one that of a record.
func named(c *reader, lookupID string, ch *wire.Chain) ([]key.Chain, error) {
	if lookupID == "" {
		chains := make([]key.Chain, 1)
		return chains, c.resolver.chain(&chains[0], ch)
	}
	chains := c.server.recent.get(asked{c.session.uid, lookupID}, c.rights.policy)
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
	sp, err := c.rights.space(handle)
	if err != nil {
		return nil, err
	}
	chains := c.server.hints.sessions.get(asked{c.session.uid, sessionName(sp.info.ID, session)}, c.rights.policy)
	if chains == nil {
		return nil, refuse(wire.CodeNotFound, "nothing is known of session %.80q in this space, or not any more; send the prompt", session)
	}
	return chains, nil
}

const (
	// maxPausesBytes bounds the memory of what waits for its time: a prompt beyond it is
	// promoted when it is asked for.
	maxPausesBytes = 16 << 20
	// pauseBytes is what a prompt that waits has besides its chunks: a timer, a function
	// and a place in a list.
	pauseBytes = 512
)

// pauses promotes prompts at a time of their own, as idle work, one after the other:
// those of conversations that rest.
type pauses struct {
	server *Server
	bytes  atomic.Int64
	wake   chan struct{} // capacity 1
	mu     struct {
		sync.Mutex
		due [][]key.Chain // prompts whose time has come
	}
}

// pausedBytes is the memory of a prompt that waits.
func pausedBytes(chains []key.Chain) int64 {
	return pauseBytes + int64(chainsBytes(chains))
}

// add has a prompt promoted after a while. Its slices may not be changed any more.
func (p *pauses) add(chains []key.Chain, after time.Duration) {
	n := pausedBytes(chains)
	if p.bytes.Add(n) > maxPausesBytes {
		p.bytes.Add(-n)
		return
	}
	time.AfterFunc(after, func() {
		p.mu.Lock()
		p.mu.due = append(p.mu.due, chains)
		p.mu.Unlock()
		base.Poke(p.wake)
	})
}

// next takes out the prompt that is due the longest; nil if none is.
func (p *pauses) next() (chains []key.Chain) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if due := p.mu.due; len(due) > 0 {
		chains, due[0], p.mu.due = due[0], nil, due[1:]
	}
	return chains
}

// run promotes until ctx ends.
func (p *pauses) run(ctx context.Context) {
	for base.Await(ctx, p.wake) {
		for chains := p.next(); chains != nil && ctx.Err() == nil; chains = p.next() {
			p.promote(ctx, chains)
			p.bytes.Add(-pausedBytes(chains))
		}
	}
}

// promote promotes chains: those of each full group, which are one prompt in all its ranks.
func (p *pauses) promote(ctx context.Context, chains []key.Chain) {
	ranks := 1
	for ranks < len(chains) && chains[ranks].Len() == chains[0].Len() {
		ranks++
	}
	if ranks < len(chains) {
		defer p.promote(ctx, chains[ranks:])
	}
	of := p.server.plainPrompt(chains[:ranks], tier.All)
	if err := of.find(ctx); err == nil && of.plan.In[tier.CPU].Chunks < of.plan.Chunks {
		p.server.newWarming(of, ledger.Daemon, nil).run(ctx)
	}
}

// A pin is a hard claim: its chunks in DRAM stay there. It ends with its connection, or at
// its end. Its name is good on every connection, with access rules on every connection of its
// user.

func handlePin(c *reader, h wire.Header, req wire.PinRequest) (wire.Message, error) {
	switch ends := req.Chain.Form == wire.FormNone; {
	case req.LookupID == "":
		return nil, refuse(wire.CodeBadRequest, "a pin needs a lookup id, or nobody can end it")
	case ends && req.MaxAgeMillis != 0:
		return nil, refuse(wire.CodeBadRequest, "form none ends the pins of %.80q at once: send a max age with a chain only", req.LookupID)
	case ends:
		n := c.server.RevokePins(func(by *hint.Claimant) bool { return by.Name == req.LookupID && c.rights.endsPin(by) })
		return &wire.PinReply{Pinned: wire.Count{Chunks: uint32(n)}}, nil
	}
	var chain key.Chain
	if err := cmp.Or(c.own(), c.resolver.chain(&chain, &req.Chain)); err != nil {
		return nil, err
	}
	limit := c.server.settings().PinMaxAge
	limit = min(limit, cmp.Or(time.Duration(req.MaxAgeMillis)*time.Millisecond, limit))
	pinned, err := addPin(c.session, &chain, chain.Skip, chain.Len(), req.LookupID, limit)
	if err != nil && pinned.Chunks == 0 {
		return nil, err
	}
	return &wire.PinReply{Pinned: countOf(pinned)}, nil
}

// addPin pins the leading run in DRAM of chunks from..to, as far as budgets
// allow.
func addPin(c *session, chain *key.Chain, from, to int, name string, age time.Duration) (pinned store.Count, err error) {
	refs := make([]tier.Ref, to-from)
	n, err := c.server.o.Store.Leases.Hold(c.owner, ledger.Pin, chain, from, to, refs)
	if n == 0 {
		return pinned, err
	}
	by := hint.Claimant{UID: c.uid, Space: chain.Space, Name: name, Connection: c.id}
	c.pins.Store(true)
	n, over := c.server.hints.claims.Pin(by, c.owner, chain.Hashes[from:from+n], refs[:n], age)
	if over != nil {
		err = refuse(wire.CodeOverBudget, "pin: %v", over)
	}
	if c.isClosed() {
		c.unpin()
		return pinned, tier.ErrClosed
	}
	return store.Count{Chunks: n, Tokens: chain.TokensIn(from, from+n)}, err
}

// unpin ends all pins of a connection, and returns how many chunks they protected.
func (c *session) unpin() int {
	if !c.pins.Load() {
		return 0
	}
	return c.server.hints.claims.End(c.id, func(*hint.Claimant) bool { return true })
}

// pinReady pins chunks from..to of a job's prefix, if it is to be pinned.
func (j *job) pinReady(from, to int) {
	for r := range j.prompt.Chains[0] {
		j.pinChunks(&j.prompt.Chains[0][r], j.prompt.skip()+from, j.prompt.skip()+to)
	}
}

// pinChunks pins chunks from..to of a chain, if the job is to be pinned. The job holds
// them, and does not show them before it has returned: with the end of a job in hand its
// client may end the pin.
func (j *job) pinChunks(chain *key.Chain, from, to int) {
	if j.pin == "" || from == to || !j.beginWait() {
		return
	}
	defer j.waits.Done()
	c := j.session
	if _, err := addPin(c, chain, from, to, j.pin, c.server.settings().PinMaxAge); err != nil {
		c.log.Debug().Err(err).Str("lookup_id", j.pin).Msg("pinned less than was matched")
	}
}
