package server

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/kvstored/kvstored/internal/hint"
	"github.com/kvstored/kvstored/internal/missing"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

func handlePrefetch(c *reader, h wire.Header, body []byte) error {
	var req wire.PrefetchRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	a := ask{
		began: time.Now(), search: searchSet(req.Search), flags: req.Flags, policy: req.Policy, loadMillis: req.LoadMillis,
		lookupID: req.LookupID, shared: req.Shared, sent: &req.Chain,
		observed: req.Chain.Form == wire.FormRef, refBytes: c.maxReply - 4*int(req.Shared.Lengths),
	}
	a.advice, a.wishes = hint.Read(req.Shared.Configs)
	var chain key.Chain
	if err := cmp.Or(checkLengths(&req.Shared), promptOf(c, &chain, &req.Chain, &req.Shared)); err != nil {
		return err
	}
	j, reply, err := c.begin(&chain, &a)
	if err != nil {
		return err
	}
	c.reply(h, &reply)
	if j.loads() {
		c.flush() // the client must know the job before its pushes
		j.run()
	}
	j.age()
	return nil
}

// ask is what a client wants of a prompt.
type ask struct {
	began      time.Time
	search     tier.Set
	flags      uint8
	policy     wire.WaitPolicy
	loadMillis uint32
	lookupID   string
	shared     wire.Shared
	sent       *wire.Chain // the record that the chain was made of
	advice     hint.Advice
	wishes     hint.Wishes
	refBytes   int  // of the reply that may be about refs
	observed   bool // by the request that made what the chain refers to
}

// begin makes the job of one prompt, and what the client is told of it. Once
// it has been told, the caller of begin lets the job run and age.
func (c *reader) begin(chain *key.Chain, a *ask) (*job, wire.PrefetchReply, error) {
	var reply wire.PrefetchReply
	pinned := a.flags&wire.PrefetchPin != 0
	if pinned && a.lookupID == "" {
		return nil, reply, refuse(wire.CodeBadRequest, "a pin needs a lookup id, or nobody can end it")
	}
	if err := cmp.Or(roomFor(c.jobs(), "jobs"), c.tenant.roomForJobs(c.server.o.Limits.UIDJobs)); err != nil {
		return nil, reply, err
	}
	if a.shared.Groups.Len() > 0 {
		return beginFamily(c, chain, a)
	}
	s := c.server
	g := group{stack: s.o.Stack, search: a.search}
	var err error
	if g.chains, err = c.ranked(chain, a.shared.Ranks); err != nil {
		return nil, reply, err
	}
	cost := jobBytes + int64(len(a.lookupID)) + liveChunkBytes*int64(len(g.chains)*chain.Len())
	if err := c.account.Charge(cost); err != nil {
		return nil, reply, err
	}
	m, err := g.match(c.ctx)
	if err != nil {
		c.account.Release(cost)
		return nil, reply, err
	}
	reply.Faults = c.hear(g.chains, a)
	reply.Worth = c.worthAll(g.chains, &m)
	j := newJob(c.session, g, &m)
	j.cost = cost
	at := j.skip() + m.Chunks
	j.short = shortfallOf(j, a.began, m.Tokens, j.why(at))
	reply.Missing = absent(c, &a.shared, j.chain, at, func() missing.Absence { return j.short.behind })
	if a.lookupID != "" {
		j.short.name = asked{c.uid, a.lookupID}
		s.recent.add(j.short.name, c.judged.policy, g.chains)
		s.recent.ended(j.short.name, outcome{j.short.behind, j.short.asked, m.Tokens})
	}
	j.over = c.prompts.find(chain).done
	s.count.asked(chain, &m)
	if pinned {
		j.pin = a.lookupID
		j.pinReady(0, j.hot)
	}
	if rate := a.shared.PrefillRate; rate > 0 {
		reply.Advice = j.advise(c.ctx, &m, rate)
	}
	if !j.mu.done {
		j.fetchRest(c.ctx, &m, deadlineFor(c, j, a, m.Tokens-j.mu.tokens))
	} else {
		j.short.settled(j)
	}
	enter(c, j, a)
	reply.Job, reply.Match, reply.State = j.id, matchOf(&m), j.firstState(a.refBytes)
	return j, reply, nil
}

// deadlineFor is when a job that must bring so many tokens up is cut short; zero for never.
func deadlineFor(c *reader, j *job, a *ask, tokens uint64) time.Time {
	policy := a.policy
	if policy == wire.PolicyDefault {
		policy = c.server.settings().Prefetch.Policy
	}
	j.best = policy == wire.PolicyBestEffort
	return deadlineOf(c.session, policy, a.loadMillis, tokens)
}

// enter makes a job one of the connection's.
func enter(c *reader, j *job, a *ask) {
	s := c.server
	c.mu.Lock()
	c.mu.jobs[j.id] = j
	c.tenant.jobs.Add(1)
	c.mu.Unlock()
	if a.flags&wire.PrefetchShared != 0 {
		s.shared.add(j)
	}
	c.untold = append(c.untold, j)
	if s.settings().Access != c.judged.policy { // replaced meanwhile, and not judged by yet
		j.revokeIfDenied()
	}
}

// hear takes what a client says of the prompt that it asks for, and returns what of that
// does not count.
func (c *reader) hear(chains []key.Chain, a *ask) []wire.Fault {
	if a.observed {
		c.prompts.advise(chains, a.advice)
	} else {
		c.prompts.observeAll(chains, false, a.advice)
	}
	if a.wishes.Any() || a.advice.Session != "" || a.advice.Measured {
		c.carryOut(chains, &a.advice, &a.wishes, false)
	}
	return a.wishes.Faults
}

// deadlineOf is when a job that must bring tokens up is cut short; zero for never.
func deadlineOf(c *session, policy wire.WaitPolicy, millis uint32, tokens uint64) time.Time {
	if policy == wire.PolicyWaitComplete {
		return time.Time{}
	}
	o := &c.server.settings().Prefetch
	d := time.Duration(millis) * time.Millisecond
	if d == 0 {
		d = o.Deadline + o.Per1024Tokens*time.Duration(tokens)/1024
	}
	return time.Now().Add(d)
}

func roomFor(have int, what string) error {
	if have >= maxLive {
		return refuse(wire.CodeOverBudget, "this connection has %d %s; release some first", have, what)
	}
	return nil
}

// jobs is how many the connection has.
func (c *session) jobs() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.jobs)
}

// job finds a job of this connection, or one that its user shares.
func (c *session) job(id uint64) (*job, error) {
	if j, _ := c.held(id); j != nil {
		return j, nil
	}
	return nil, unknownJob(id)
}

func unknownJob(id uint64) error {
	return refuse(wire.CodeUnknownJob, "job %d is not live on this connection: it was released, or never was", id)
}

// takeJob finds a job and forgets it. The request that ends it lets the waits be
// answered before its own reply, which is the last word then.
func (c *session) takeJob(body []byte) (*job, error) {
	var req wire.IDRequest
	if err := req.Decode(body); err != nil {
		return nil, err
	}
	j, err := c.job(req.ID)
	if err != nil || !j.session.forgetJob(j) {
		return nil, unknownJob(req.ID)
	}
	return j, nil
}

// forgetJob takes a job out of the connection's table. It reports whether it was there.
func (c *session) forgetJob(j *job) bool {
	c.mu.Lock()
	if c.mu.closed || c.mu.jobs[j.id] != j {
		c.mu.Unlock()
		return false
	}
	delete(c.mu.jobs, j.id)
	c.tenant.jobs.Add(-1)
	c.mu.Unlock()
	c.server.shared.remove(j.id)
	return true
}

func handleWait(c *reader, h wire.Header, body []byte) error {
	var req wire.WaitRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	j, err := c.job(req.Job)
	if err != nil {
		return err
	}
	if j.loads() && j.best {
		j.stop()
	}
	if j.fetch != nil {
		j.changed() // in case the loader has not come to it yet
	}
	if req.Deadline == (wire.Deadline{Given: true}) || j.has(req.MinTokens) {
		st := j.state(req.From)
		c.reply(h, &st)
		return nil
	}
	start := time.Now()
	if !j.beginWait() {
		return unknownJob(req.Job)
	}
	err = c.async(h, func(ctx context.Context) {
		defer j.waits.Done()
		defer func() { c.server.took(h.Op, time.Since(start)) }()
		limited, cancel := within(ctx, req.Deadline)
		defer cancel()
		j.await(limited, req.MinTokens)
		st := j.state(req.From)
		c.answerAsync(h, &st, asCancelled(ctx, ctx.Err()))
	})
	if err != nil {
		j.waits.Done()
	}
	return err
}

// has reports whether so many tokens are ready, or no more will be.
func (j *job) has(tokens uint64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.done || j.mu.tokens >= tokens
}

// chunksFor is how many chunks hold at least tokens tokens.
func (j *job) chunksFor(tokens uint64) int {
	n, sum := 0, uint64(0)
	for _, t := range j.chain.Tokens[j.chain.Skip:] {
		if sum >= tokens {
			break
		}
		sum += uint64(t)
		n++
	}
	if sum < tokens {
		n++ // more than there is: until the job is done
	}
	return n
}

func handleRelease(c *reader, h wire.Header, body []byte) error {
	j, err := c.takeJob(body)
	if err != nil {
		return err
	}
	out := wire.ReleaseReply{Code: wire.CodeOK}
	if !j.end() {
		out.Code = wire.CodeRevoked
	}
	j.waits.Wait()
	j.session.account.Release(j.cost)
	out.State = j.state(wire.FromUnsent)
	c.reply(h, &out)
	return nil
}

func handleRenew(c *reader, h wire.Header, body []byte) error {
	var req wire.IDRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	j, f := c.held(req.ID)
	switch {
	case j != nil && !j.age():
		return refuse(wire.CodeRevoked, "the lease of job %d has expired; forget what was read under it and ask again", j.id)
	case f != nil && !f.age():
		return refuse(wire.CodeRevoked, "fill %d was given up; reserve again", f.id)
	case j == nil && f == nil:
		return unknownJob(req.ID)
	}
	age := c.leaseAge
	if j != nil {
		age = j.session.leaseAge
	}
	c.reply(h, &wire.RenewReply{HoldsMillis: uint32(age.Milliseconds())})
	return nil
}

// worthAll is worth for all ranks of a prompt: what one of them would not
// store is of no use to the others.
func (c *reader) worthAll(chains []key.Chain, m *stack.Match) uint32 {
	least := uint32(math.MaxUint32)
	for r := range chains {
		least = min(least, c.worth(&chains[r], m))
	}
	return least
}

// worth is how many chunks behind the skipped ones are there or worth storing.
func (c *reader) worth(chain *key.Chain, m *stack.Match) uint32 {
	return uint32(m.Chunks + c.server.o.Stack.Admit(chain, chain.Skip+m.Chunks, c.payload))
}
