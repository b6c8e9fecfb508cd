package server

import (
	"context"
	"math"
	"time"

	"github.com/kvstored/kvstored/internal/hint"
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
		search: searchSet(req.Search), flags: req.Flags, policy: req.Policy, deadlineMillis: req.DeadlineMillis,
		lookupID: req.LookupID, ranks: req.Ranks, prefillRate: req.PrefillRate,
		advice: hint.Read(req.Configs), announced: req.Chain.Form == wire.FormRef,
	}
	var chain key.Chain
	if err := c.chain(&chain, &req.Chain); err != nil {
		return err
	}
	j, reply, err := c.begin(&chain, &a)
	if err != nil {
		return err
	}
	c.reply(h, &reply)
	if j.fetch != nil {
		c.flush() // the client must know the job before its pushes
		j.run()
	}
	j.age()
	return nil
}

// ask is what a client wants of a prompt.
type ask struct {
	search         tier.Set
	flags          uint8
	policy         wire.WaitPolicy
	deadlineMillis uint32
	lookupID       string
	ranks          wire.U32s
	prefillRate    uint32
	advice         hint.Advice
	announced      bool // by whoever made the chain that the prompt refers to
}

// begin makes the job of one prompt, and what the client is told of it. Once
// it has been told, the caller of begin lets the job run and age.
func (c *reader) begin(chain *key.Chain, a *ask) (*job, wire.PrefetchReply, error) {
	var reply wire.PrefetchReply
	pinned := a.flags&wire.PrefetchPin != 0
	if pinned && a.lookupID == "" {
		return nil, reply, refuse(wire.StatusBadRequest, "a pin needs a lookup id, or nobody can end it")
	}
	if err := roomFor(len(c.mu.jobs), "jobs"); err != nil { // only the reader adds and deletes
		return nil, reply, err
	}
	if err := c.tenant.roomForJobs(c.server.o.Limits.UIDJobs); err != nil {
		return nil, reply, err
	}
	s := c.server
	g := group{stack: s.o.Stack, search: a.search}
	var err error
	if g.chains, err = c.ranked(chain, a.ranks); err != nil {
		return nil, reply, err
	}
	cost := liveBytes + liveChunkBytes*int64(len(g.chains)*chain.Len())
	if err := c.account.Charge(cost); err != nil {
		return nil, reply, err
	}
	m, err := g.match(c.turning)
	if err != nil {
		c.account.Release(cost)
		return nil, reply, err
	}
	if a.lookupID != "" {
		s.recent.add(asked{c.uid, a.lookupID}, c.judged.policy, g.chains)
	}
	if a.announced {
		c.prompts.advise(g.chains, a.advice)
	} else {
		c.prompts.announceAll(g.chains, false, a.advice)
	}
	reply.Worth = c.worthAll(g.chains, &m)
	j := newJob(c.session, g, &m)
	j.cost = cost
	j.over = c.prompts.find(chain).done
	s.count.asked(chain, &m)
	if pinned {
		j.pin = a.lookupID
		j.pinReady(0, j.hot)
	}
	if a.prefillRate > 0 {
		reply.Advice = j.advise(&m, a.prefillRate)
	}
	if !j.mu.done {
		policy := a.policy
		if policy == wire.PolicyDefault {
			policy = s.settings().Prefetch.Policy
		}
		j.best = policy == wire.PolicyBestEffort
		j.fetchRest(&m, deadlineOf(c.session, policy, a.deadlineMillis, m.Tokens-j.mu.tokens))
	}
	c.mu.Lock()
	c.mu.jobs[j.id] = j
	c.tenant.jobs.Add(1)
	c.mu.Unlock()
	if s.settings().Access != c.judged.policy { // replaced meanwhile, and not judged by yet
		j.revokeIfDenied()
	}
	reply.Job, reply.Match, reply.State = j.id, matchOf(&m), j.firstState()
	return j, reply, nil
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
		return refuse(wire.StatusOverBudget, "this connection has %d %s; release some first", have, what)
	}
	return nil
}

// job finds a job of this connection.
func (c *session) job(id uint64) (*job, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if j := c.mu.jobs[id]; j != nil {
		return j, nil
	}
	return nil, refuse(wire.StatusUnknownJob, "job %d is not live on this connection: it was released or cancelled, or never was", id)
}

// takeJob finds a job and forgets it. The request that ends it lets the waits be
// answered before its own reply, which is the last word then.
func (c *session) takeJob(body []byte) (*job, error) {
	var req wire.JobRequest
	if err := req.Decode(body); err != nil {
		return nil, err
	}
	j, err := c.job(req.Job)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.jobs, req.Job)
	c.tenant.jobs.Add(-1)
	return j, nil
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
	if j.fetch != nil {
		if j.best {
			j.fetch.Stop()
		}
		j.changed() // in case the loader has not come to it yet
	}
	if req.TimeoutMillis == 0 || j.has(req.MinTokens) {
		st := j.state(req.From)
		c.reply(h, &st)
		return nil
	}
	start := time.Now()
	j.waits.Add(1)
	err = c.async(func(ctx context.Context) {
		defer j.waits.Done()
		defer func() { c.server.observe(h.Op, time.Since(start)) }()
		ctx, cancel := context.WithTimeout(ctx, time.Duration(req.TimeoutMillis)*time.Millisecond)
		defer cancel()
		j.fetch.Wait(ctx, j.ranks()*(j.chunksFor(req.MinTokens)-j.hot))
		j.changed()
		st := j.state(req.From)
		c.answerAsync(h, &st, nil)
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

func handleCancel(c *reader, h wire.Header, body []byte) error {
	j, err := c.takeJob(body)
	if err != nil {
		return err
	}
	j.end()
	j.waits.Wait()
	c.account.Release(j.cost)
	st := j.state(wire.FromUnsent)
	c.reply(h, &st)
	return nil
}

func handleRelease(c *reader, h wire.Header, body []byte) error {
	j, err := c.takeJob(body)
	if err != nil {
		return err
	}
	out := wire.ReleaseReply{Outcome: wire.OutcomeOK}
	if !j.end() {
		out.Outcome = wire.OutcomeRevoked
	}
	j.waits.Wait()
	c.account.Release(j.cost)
	c.reply(h, &out)
	return nil
}

func handleRenew(c *reader, h wire.Header, body []byte) error {
	var req wire.JobRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	j, err := c.job(req.Job)
	if err != nil {
		return err
	}
	if !j.age() {
		return refuse(wire.StatusRevoked, "the lease of job %d has expired; forget what was read under it and ask again", j.id)
	}
	c.reply(h, &wire.RenewReply{RemainingMillis: uint32(c.leaseAge.Milliseconds())})
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
