package server

import (
	"cmp"
	"context"
	"math"
	"strings"
	"time"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/prefetch"
	"github.com/kvstored/kvstored/tier"
)

func handlePrefetch(c *reader, h wire.Header, req wire.PrefetchRequest) (wire.Message, error) {
	a := ask{
		began: time.Now(), search: searchSet(req.Search), flags: req.Flags, policy: req.Policy, loadMillis: req.LoadMillis,
		lookupID: req.LookupID, shared: req.Shared, sent: &req.Chain,
		observed: req.Chain.Form == wire.FormRef, refBytes: c.session.maxReply - 4*int(req.Shared.Lengths),
	}
	a.advice, a.actions = hint.Read(req.Shared.Configs)
	var chain key.Chain
	if err := c.resolver.promptOf(&chain, &req.Chain, &req.Shared); err != nil {
		return nil, err
	}
	j, reply, err := c.begin(&chain, &a)
	if err != nil {
		return nil, err
	}
	c.reply(h, &reply)
	if j.loads {
		c.flush() // the client must know the job before its pushes
		j.run()
	}
	j.age()
	return nil, nil
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
	actions    hint.Actions
	refBytes   int  // of the reply that may be about refs
	observed   bool // by the request that made what the chain refers to
}

// begin makes the job of one prompt, and what the client is told of it. Once
// it has been told, the caller of begin lets the job run and age.
func (c *reader) begin(chain *key.Chain, a *ask) (*job, wire.PrefetchReply, error) {
	var reply wire.PrefetchReply
	if err := c.session.mayBegin(a); err != nil {
		return nil, reply, err
	}
	p, err := c.resolver.promptIn([]key.Chain{*chain}, a.sent, &a.shared, a.search)
	if err != nil {
		return nil, reply, err
	}
	cost := jobBytes + int64(len(a.lookupID)) + liveChunkBytes*int64(p.pieces())
	if err := c.session.account.Charge(cost); err != nil {
		return nil, reply, err
	}
	if err = p.find(c.session.ctx); err == nil {
		reply.Grouped, err = p.grouped(c.session.ctx, a.shared.Lengths)
	}
	if err != nil {
		c.session.account.Release(cost)
		return nil, reply, err
	}
	if a.observed {
		reply.Faults = c.hear(p.taught(), a)
	} else {
		p.observed(&c.prompts, a.advice.PrefillDepth, func() { reply.Faults = c.hear(p.taught(), a) })
	}
	reply.Match, reply.Worth = matchOf(&p.plan.Match), p.worth(c.payload)
	j := newJob(c.session, &p)
	j.cost = cost
	if a.flags&wire.PrefetchAlone != 0 {
		reply.Alone = j.holdSingles()
	}
	j.missed = missedOf(j, a.began, p.plan.Tokens, p.why())
	reply.Missing = absent(&c.rights, &a.shared, func() explain.Absence { return j.missed.behind })
	if a.lookupID != "" && p.IsPlain() {
		j.missed.name = asked{c.session.uid, a.lookupID}
		c.server.recent.add(j.missed.name, c.rights.policy, p.Chains[0])
		c.server.recent.ended(j.missed.name, outcome{j.missed.behind, j.missed.asked, p.plan.Tokens})
	}
	j.over = c.prompts.find(chain).done
	c.server.count.asked(chain, &p.plan.Match)
	if a.flags&wire.PrefetchPin != 0 {
		j.pin = a.lookupID
		j.pinReady(0, j.hot)
	}
	reply.Advice = j.start(c, a)
	enter(c, j, a)
	reply.Job, reply.State = j.id, j.firstState(a.refBytes-4*reply.Alone.Len())
	return j, reply, nil
}

// mayBegin is an error unless the connection may have another job, and its options go
// together.
func (c *session) mayBegin(a *ask) error {
	switch {
	case a.flags&wire.PrefetchPin != 0 && a.lookupID == "":
		return refuse(wire.CodeBadRequest, "a pin needs a lookup id, or nobody can end it")
	case a.flags&wire.PrefetchAlone != 0 && a.shared.Groups.Len() > 0:
		return refuse(wire.CodeBadRequest, "alone: of groups the longest usable prefix is held; ask for each group without groups")
	}
	jobs, _ := c.counts()
	return cmp.Or(roomFor(jobs, "jobs"), c.tenant.roomForJobs(c.server.o.Limits.UIDJobs))
}

// start makes ready to bring up the rest of a prompt, of which a client that has asked for
// that gets advice.
func (j *job) start(c *reader, a *ask) (advice *wire.Advice) {
	found := j.prompt.plan.Tokens
	if j.whole != nil {
		c.server.count.lost.cut(&j.prompt)
	}
	if rate := a.shared.PrefillRate; rate > 0 {
		c.server.model(j.prompt.chain().Space).rate.Store(rate)
		advice = j.advise(c.session.ctx, rate)
	}
	if j.mu.done {
		j.missed.settled(j)
		return advice
	}
	if j.until = deadlineFor(c, j, a, found-j.mu.tokens); j.whole != nil {
		j.loads = j.whole.begin()
	} else {
		j.fetchRest()
	}
	return advice
}

// deadlineFor is when a job that must bring so many tokens up is cut short; zero for never.
func deadlineFor(c *reader, j *job, a *ask, tokens uint64) time.Time {
	o := &c.server.settings().Prefetch
	policy, d := cmp.Or(a.policy, o.Policy), time.Duration(a.loadMillis)*time.Millisecond
	if j.best = policy == wire.PolicyBestEffort; policy == wire.PolicyWaitComplete {
		return time.Time{}
	}
	if d == 0 {
		d = o.Deadline + o.Per1024Tokens*time.Duration(tokens)/1024
	}
	return time.Now().Add(d)
}

// enter makes a job one of the connection's.
func enter(c *reader, j *job, a *ask) {
	s := c.server
	c.session.mu.Lock()
	c.session.mu.jobs[j.id] = j
	c.session.tenant.jobs.Add(1)
	c.session.mu.Unlock()
	if a.flags&wire.PrefetchShared != 0 {
		s.shared.Store(j.id, j)
	}
	c.unannounced = append(c.unannounced, j)
	if s.settings().Access != c.rights.policy { // replaced meanwhile, and not judged by yet
		j.revokeIfDenied()
	}
}

// hear takes what a client says of the prompt that it asks for, and returns what of that
// does not count.
func (c *reader) hear(chains []key.Chain, a *ask) []wire.Fault {
	if a.observed {
		c.prompts.advise(chains, a.advice)
	} else {
		c.prompts.observe(chains, false, a.advice)
	}
	if a.actions.Any() || a.advice.Session != "" || a.advice.Measured {
		c.carryOut(chains, &a.advice, &a.actions, false)
	}
	return a.actions.Faults
}

func roomFor(have int, what string) error {
	if have >= maxLive {
		return refuse(wire.CodeOverBudget, "this connection has %d %s; release some first", have, what)
	}
	return nil
}

// counts is how many jobs and fills the connection has.
func (c *session) counts() (jobs, fills int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.jobs), len(c.mu.fills)
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
func (c *session) takeJob(id uint64) (*job, error) {
	j, err := c.job(id)
	if err != nil || !j.session.forgetJob(j) {
		return nil, unknownJob(id)
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
	c.server.shared.Delete(j.id)
	return true
}

func handleWait(c *reader, h wire.Header, req wire.WaitRequest) (wire.Message, error) {
	j, err := c.session.job(req.Job)
	if err != nil {
		return nil, err
	}
	if j.loads && j.best {
		j.halt(prefetch.ErrDeadline)
	}
	if j.loads && j.whole == nil {
		j.changed() // in case the loader has not come to it yet
	}
	if req.Deadline == (wire.Deadline{Given: true}) || j.has(req.MinTokens) {
		st := j.state(req.From)
		return &st, nil
	}
	start := time.Now()
	if !j.beginWait() {
		return nil, unknownJob(req.Job)
	}
	err = c.async(h, func(ctx context.Context) {
		defer j.waits.Done()
		defer func() { c.server.took(h.Op, time.Since(start)) }()
		limited, cancel := within(ctx, req.Deadline)
		defer cancel()
		j.await(limited, req.MinTokens)
		st := j.state(req.From)
		c.session.answerAsync(h, &st, asCancelled(ctx, ctx.Err()))
	})
	if err != nil {
		j.waits.Done()
	}
	return nil, err
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
	for _, t := range j.prompt.chain().Tokens[j.prompt.skip():] {
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

func handleRelease(c *reader, _ wire.Header, req wire.IDRequest) (wire.Message, error) {
	j, err := c.session.takeJob(req.ID)
	if err != nil {
		return nil, err
	}
	out := wire.ReleaseReply{Code: wire.CodeOK}
	if !j.end() {
		out.Code = wire.CodeRevoked
	}
	j.waits.Wait()
	j.session.account.Release(j.cost)
	out.State = j.state(wire.FromUnsent)
	return &out, nil
}

func handleRenew(c *reader, h wire.Header, req wire.IDRequest) (wire.Message, error) {
	j, f := c.session.held(req.ID)
	switch {
	case j != nil && !j.age():
		return nil, refuse(wire.CodeRevoked, "the lease of job %d has expired; forget what was read under it and ask again", j.id)
	case f != nil && !f.age():
		return nil, refuse(wire.CodeRevoked, "fill %d was given up; reserve again", f.id)
	case j == nil && f == nil:
		return nil, unknownJob(req.ID)
	}
	age := c.session.leaseAge
	if j != nil {
		age = j.session.leaseAge
	}
	return &wire.RenewReply{HoldsMillis: uint32(age.Milliseconds())}, nil
}

// batchedBytes is more than what the reply has for one prompt, besides refs.
const batchedBytes = 768

// handleBatch is a prefetch for each of many prompts. The error of one prompt
// is the answer for that one only.
func handleBatch(c *reader, h wire.Header, req wire.BatchRequest) (wire.Message, error) {
	if req.Shared.Lengths > 0 {
		return nil, refuse(wire.CodeBadRequest, "lengths: a lookup or a prefetch names them, a batch does not")
	}
	began := time.Now()
	prompts, errs, err := promptsOf(c, &req)
	if err != nil {
		return nil, err
	}
	said, wished := hint.Read(req.Shared.Configs)
	reply := wire.BatchReply{Jobs: make([]wire.BatchJob, len(prompts))}
	var jobs []*job
	left := c.session.maxReply - batchedBytes*len(prompts) // for refs
	for i := range prompts {
		if errs[i] = cmp.Or(errs[i], c.session.ctx.Err()); errs[i] == nil {
			var j *job
			a := ask{
				began: began, search: searchSet(req.Search), flags: req.Flags, policy: req.Policy, loadMillis: req.LoadMillis,
				lookupID: req.Prompts[i].LookupID, shared: req.Shared, sent: &req.Prompts[i].Chain,
				advice: said, actions: wished, observed: req.Prompts[i].Chain.Form == wire.FormRef, refBytes: stateBytes + left/(len(prompts)-i),
			}
			if j, reply.Jobs[i].Prefetch, errs[i] = c.begin(prompts[i].Chain, &a); errs[i] == nil {
				jobs = append(jobs, j)
				left -= 24*reply.Jobs[i].Prefetch.State.Refs.Len() + 4*reply.Jobs[i].Prefetch.Alone.Len()
				prompts[i].Cached = prompts[i].Chain.Skip + int(reply.Jobs[i].Prefetch.Match.Total.Chunks)
				continue
			}
		}
		c.server.count.failures.add(wire.OpBatch, codeOf(errs[i]))
		text := errs[i].Error()
		reply.Jobs[i].Code, reply.Jobs[i].Text = codeOf(errs[i]), strings.ToValidUTF8(text[:min(len(text), batchedBytes/2)], "")
	}
	var order []uint32
	for _, i := range prefetch.Order(prompts, int(min(req.MaxOvertaken, math.MaxInt32))) {
		order = append(order, uint32(i))
	}
	reply.Order = wire.ViewU32s(order)
	c.reply(h, &reply)
	c.flush() // the client must know the jobs before their pushes
	for _, j := range jobs {
		if j.loads {
			j.run()
		}
		j.age()
	}
	return nil, nil
}

// promptsOf builds the chains of a batch. One that cannot be built has no chunks
// and an error.
func promptsOf(c *reader, req *wire.BatchRequest) ([]prefetch.Prompt, []error, error) {
	prompts, errs := make([]prefetch.Prompt, len(req.Prompts)), make([]error, len(req.Prompts))
	pieces := int64(0)
	for i := range req.Prompts {
		p := &req.Prompts[i]
		prompts[i] = prefetch.Prompt{Chain: new(key.Chain), Overtaken: int(min(p.Overtaken, math.MaxInt32))}
		if errs[i] = c.resolver.promptOf(prompts[i].Chain, &p.Chain, &req.Shared); errs[i] != nil {
			prompts[i].Chain.Reset()
		}
		if pieces += int64(prompts[i].Chain.Len()) * int64(max(1, req.Shared.Groups.Len())+req.Shared.Ranks.Len()); pieces > key.MaxChunks {
			return nil, nil, tooLarge(key.MaxChunks, "the prompts have more than %d chunks in all; send fewer at a time", key.MaxChunks)
		}
	}
	return prompts, errs, nil
}

// advise says how much of the match to bring up and how much to compute, by
// what the tiers delivered lately and how many others they serve. The job
// brings up no more than that.
func (j *job) advise(ctx context.Context, prefillRate uint32) *wire.Advice {
	if j.whole != nil {
		return j.whole.adviseLength(ctx, prefillRate)
	}
	need, n := &j.prompt.plan.Needs[0], j.prompt.plan.Chunks
	if j.mu.done {
		n = j.hot // no more is to be had
	}
	var size [tier.Places]int64
	for p := range size {
		size[p] = int64(j.prompt.ranks()) * j.prompt.store.Loader.Speed(tier.Place(p)).ChunkBytes
	}
	steps := make([]prefetch.Step, n)
	for i := range steps {
		steps[i] = prefetch.Step{Link: -1, Tokens: j.prompt.chain().Tokens[need.From+i]}
		if i >= j.hot {
			p := need.At(need.From + i).Nearest()
			steps[i].Link, steps[i].Bytes = int(p), size[p]
		}
	}
	load, after := prefetch.Advise(steps, j.links(), j.behind(len(steps)), float64(prefillRate))
	if load < n {
		j.limit, j.prompt.rests, j.prompt.unsearched = j.prompt.skip()+load, nil, nil
	}
	if !j.mu.done && load == j.hot && j.prompt.rests == nil {
		j.mu.done = true
		j.prompt.touch(0, j.hot)
	}
	return &wire.Advice{Load: j.firstTokens(load), Micros: uint64(after.Microseconds())}
}

// links are the tiers, as fast as they were lately, by place. What DRAM has takes no time.
func (j *job) links() []prefetch.Link {
	links := make([]prefetch.Link, tier.Places)
	links[tier.CPU].BytesPerSecond = math.Inf(1)
	for p := tier.Disk; p < tier.Places; p++ {
		s := j.prompt.store.Loader.Speed(p)
		links[p] = prefetch.Link{First: s.First, BytesPerSecond: s.BytesPerSecond / float64(1+s.Others)}
	}
	return links
}

// behind is how many tokens of the prompt lie behind its first n chunks.
func (j *job) behind(n int) uint64 {
	return j.prompt.chain().TokensIn(j.prompt.skip()+n, j.prompt.chain().Len())
}

// advisedLengths is among how many usable lengths the advice chooses, the longest ones.
const advisedLengths = 64

// adviseLength is advise for a hybrid model: it chooses among the lengths at which the
// prompt is usable, and none. The job brings up what the one that was chosen needs.
func (a *lengthJob) adviseLength(ctx context.Context, prefillRate uint32) *wire.Advice {
	skip, aim := a.job.prompt.Skip, a.job.prompt.plan
	lengths, err := a.job.prompt.store.Lookups.Lengths(ctx, a.job.prompt.Family, a.job.prompt.search, &a.job.prompt.plan, advisedLengths)
	if err != nil {
		return nil
	}
	if skip == 0 || len(lengths) == 0 || lengths[len(lengths)-1] != skip {
		lengths = append(lengths, skip)
	}
	total := skip + int(a.job.behind(0))
	best, least := aim, -1.0
	for _, n := range lengths {
		m, err := aim, error(nil)
		switch {
		case n == skip:
			m = a.job.nothing()
		case n < aim.End:
			m, err = a.job.prompt.store.Lookups.Probe(ctx, a.job.prompt.Family, a.job.prompt.search, n, nil)
		}
		if err != nil {
			return nil
		}
		if t := a.takes(&m) + float64(total-m.End)/float64(prefillRate); least < 0 || t < least {
			best, least = m, t
		}
	}
	a.job.prompt.plan = best
	return &wire.Advice{Load: countOf(best.Count), Micros: uint64(least * 1e6)}
}

// takes is the seconds in which all that m needs comes up.
func (a *lengthJob) takes(m *store.Plan) float64 {
	t, sizes := prefetch.NewTempo(a.job.links()), a.sizes(m)
	for _, l := range a.lacking(m) {
		t.Load(int(l.at.Nearest()), sizes[l.Group])
	}
	return t.Seconds
}
