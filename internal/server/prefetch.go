package server

import (
	"context"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

func (c *session) prefetch(h wire.Header, body []byte) error {
	var req wire.PrefetchRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	pinned := req.Flags&wire.PrefetchPin != 0
	if pinned && req.LookupID == "" {
		return refuse(wire.StatusBadRequest, "prefetch: a pin needs a lookup id, or nobody can end it")
	}
	var chain key.Chain
	if err := c.chain(&chain, &req.Chain); err != nil {
		return err
	}
	if err := c.roomFor(len(c.mu.jobs), "jobs"); err != nil { // only the reader adds and deletes
		return err
	}
	s := c.server
	search := searchSet(req.Search)
	m, err := s.o.Stack.Match(c.ctx, &chain, search)
	if err != nil {
		return err
	}
	if req.Chain.Form != wire.FormRef {
		c.announce(&chain, false, readAdvice(req.Configs))
	}
	worth := c.worth(&chain, &m)
	j := c.newJob(&chain, search, &m)
	j.over = c.said(&chain).done
	s.count.asked(&chain, &m)
	if pinned {
		j.pin = req.LookupID
		j.pinReady(0, j.hot)
	}
	loads := !j.mu.done
	if loads {
		policy := req.Policy
		if policy == wire.PolicyDefault {
			policy = s.o.Prefetch.Policy
		}
		j.best = policy == wire.PolicyBestEffort
		j.fetchRest(m.Chunks, c.deadline(policy, req.DeadlineMillis, m.Tokens-j.mu.tokens))
	}
	c.reply(h, &wire.PrefetchReply{Job: j.id, Match: matchOf(&m), State: j.firstState(), Worth: worth})
	c.mu.Lock()
	c.mu.jobs[j.id] = j
	c.mu.Unlock()
	if loads {
		c.flush() // the client must know the job before its pushes
		j.run()
	}
	j.age()
	return nil
}

// deadline is when a job that must bring tokens up is cut short; zero for never.
func (c *session) deadline(policy wire.WaitPolicy, millis uint32, tokens uint64) time.Time {
	if policy == wire.PolicyWaitComplete {
		return time.Time{}
	}
	o := &c.server.o.Prefetch
	d := time.Duration(millis) * time.Millisecond
	if d == 0 {
		d = o.Deadline + o.Per1024Tokens*time.Duration(tokens)/1024
	}
	return time.Now().Add(d)
}

func (c *session) roomFor(have int, what string) error {
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

// takeJob finds a job and forgets it. Whoever ends it also lets its waits be
// answered before it answers itself, so that its reply is the last word.
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
	return j, nil
}

func (c *session) wait(h wire.Header, body []byte) error {
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
		j.changed() // in case whoever loads has not come to it yet
	}
	if req.TimeoutMillis == 0 || j.has(req.MinTokens) {
		st := j.state(req.From)
		c.reply(h, &st)
		return nil
	}
	start := time.Now()
	j.waits.Add(1)
	err = c.aside(func(ctx context.Context) {
		defer j.waits.Done()
		defer c.server.observe(h.Op, start)
		ctx, cancel := context.WithTimeout(ctx, time.Duration(req.TimeoutMillis)*time.Millisecond)
		defer cancel()
		j.fetch.Wait(ctx, j.chunksFor(req.MinTokens)-j.hot)
		j.changed()
		st := j.state(req.From)
		c.answerLate(h, &st, nil)
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

func (c *session) cancel(h wire.Header, body []byte) error {
	j, err := c.takeJob(body)
	if err != nil {
		return err
	}
	j.end()
	j.waits.Wait()
	st := j.state(wire.FromUnsent)
	c.reply(h, &st)
	return nil
}

func (c *session) release(h wire.Header, body []byte) error {
	j, err := c.takeJob(body)
	if err != nil {
		return err
	}
	out := wire.ReleaseReply{Outcome: wire.OutcomeOK}
	if !j.end() {
		out.Outcome = wire.OutcomeRevoked
	}
	j.waits.Wait()
	c.reply(h, &out)
	return nil
}

func (c *session) renew(h wire.Header, body []byte) error {
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
	c.reply(h, &wire.RenewReply{RemainingMillis: uint32(c.server.o.LeaseMaxAge.Milliseconds())})
	return nil
}
