package server

import (
	"context"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/prefetch"
	"github.com/kvstored/kvstored/tier"
)

// job is one prefetch and its lease: the chunks of its prefix that are in
// DRAM, held for the client until it releases them, leaves, or the lease has
// grown too old.
type job struct {
	id      uint64
	session *session
	chain   key.Chain // nobody changes it
	search  tier.Set
	best    bool                 // the first wait ends it
	pin     *pinName             // pin the prefix when it is final; nil: do not
	hot     int                  // chunks leased before anything was fetched
	fetch   *prefetch.Job[chunk] // brings up the rest; nil if there is none
	expiry  *time.Timer
	queued  bool // a push waits its turn; the output's mutex guards it

	mu struct {
		sync.Mutex
		refs   []tier.Ref // the ready prefix, held
		tokens uint64     // in it
		in     [tier.Places]tier.Count
		sent   int // chunks whose refs the client has been sent
		done   bool
		err    error // why a job that is done is short; nil = complete
		ended  bool  // nothing is held any more
		reason wire.Reason
		until  time.Time
	}
}

// chunk is a chunk that came up, held for the client.
type chunk struct {
	ref  tier.Ref
	from tier.Place
}

// newJob leases what is in DRAM of the match.
func (c *session) newJob(chain *key.Chain, search tier.Set, m *tier.Match) *job {
	j := &job{id: c.server.ids.Add(1), session: c, chain: *chain, search: search}
	refs := make([]tier.Ref, m.Hot, max(m.Hot, m.Chunks))
	from := chain.Skip
	n, err := c.server.o.Stack.Hold(c.owner, ledger.Lease, &j.chain, from, from+m.Hot, refs)
	j.hot = n
	j.mu.refs = refs[:0]
	for _, r := range refs[:n] {
		j.add(chunk{r, tier.CPU})
	}
	if j.mu.done = n == m.Chunks || err != nil; j.mu.done {
		j.mu.err = err
		c.server.o.Stack.Touch(&j.chain, from, from+n)
	}
	return j
}

// add extends the prefix; called with the mutex held, or before j is shared.
func (j *job) add(ch chunk) {
	tokens := j.chain.Tokens[j.chain.Skip+len(j.mu.refs)]
	j.mu.refs = append(j.mu.refs, ch.ref)
	j.mu.tokens += uint64(tokens)
	j.mu.in[ch.from].Chunks++
	j.mu.in[ch.from].Tokens += uint64(tokens)
}

// start fetches what the match promised and the lease does not have yet.
func (j *job) start(matched int, deadline time.Time) {
	c := j.session
	j.fetch = prefetch.New(prefetch.Options[chunk]{
		From: j.chain.Skip + j.hot, To: j.chain.Skip + matched,
		Window: c.server.o.Prefetch.WindowBytes, Deadline: deadline,
		Discard: func(ch chunk) { j.letGo([]tier.Ref{ch.ref}) },
		Changed: j.changed,
	}, j)
	c.join()
	c.waiting.Go(func() {
		defer c.leave()
		// Not the connection's context: loads under way when it ends are
		// cancelled by whoever ends the job.
		j.fetch.Run(context.WithoutCancel(c.ctx))
	})
}

// Load implements prefetch.Source.
func (j *job) Load(ctx context.Context, i int) (chunk, int64, error) {
	ref, from, err := j.session.server.o.Stack.Load(ctx, j.session.owner, &j.chain, i, j.search)
	if err != nil {
		return chunk{}, 0, err
	}
	return chunk{ref, from}, int64(ref.Block.Len()), nil
}

// changed takes over what became ready, and tells the client.
func (j *job) changed() {
	if j.collect() && j.session.pushes {
		j.session.out.push(j)
	}
}

// collect takes over what the fetch has ready, and its end. It reports
// whether anything changed.
func (j *job) collect() bool {
	st := j.fetch.State()
	j.mu.Lock()
	have := len(j.mu.refs)
	j.mu.Unlock()
	var scratch [16]chunk
	ready := j.fetch.Ready(have-j.hot, scratch[:0])

	j.mu.Lock()
	if j.mu.ended {
		j.mu.Unlock()
		return false // whoever ended it gives back what is ready
	}
	before, ends := len(j.mu.refs), st.Done && !j.mu.done
	for _, ch := range ready[min(before-have, len(ready)):] { // another collect may have been here
		j.add(ch)
	}
	if ends {
		j.mu.done, j.mu.err = true, st.Err
	}
	now := len(j.mu.refs)
	j.mu.Unlock()
	if ends {
		j.session.server.o.Stack.Touch(&j.chain, j.chain.Skip, j.chain.Skip+now)
		if j.pin != nil {
			j.pinReady(now)
		}
	}
	return now > before || ends
}

// end gives the lease back, for a reason. It reports whether the job still
// had it.
func (j *job) end(reason wire.Reason) bool {
	j.mu.Lock()
	if j.mu.ended {
		j.mu.Unlock()
		return false
	}
	j.mu.ended, j.mu.reason = true, reason
	if !j.mu.done {
		j.mu.done, j.mu.err = true, prefetch.ErrCancelled
	}
	refs, in := j.mu.refs, j.mu.in
	j.mu.refs = nil
	j.mu.Unlock()
	if j.expiry != nil {
		j.expiry.Stop()
	}
	var late []tier.Ref
	if j.fetch != nil {
		j.fetch.Cancel()
		for _, ch := range j.fetch.Ready(len(refs)-j.hot, nil) {
			late = append(late, ch.ref)
		}
	}
	j.session.server.count.hit(in)
	j.letGo(refs)
	j.letGo(late)
	return true
}

func (j *job) letGo(refs []tier.Ref) {
	j.session.server.o.Stack.Release(j.session.owner, ledger.Lease, refs)
}

// age starts the age of the lease anew. It reports whether the job still has
// its lease.
func (j *job) age(limit time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.ended {
		return false
	}
	j.mu.until = time.Now().Add(limit)
	if j.expiry == nil {
		j.expiry = time.AfterFunc(limit, func() { j.expire(limit) })
	} else {
		j.expiry.Reset(limit)
	}
	return true
}

// expire revokes the lease unless it was renewed this very moment.
func (j *job) expire(limit time.Duration) {
	j.mu.Lock()
	early := time.Now().Before(j.mu.until)
	j.mu.Unlock()
	if early {
		return // Reset has set the timer again
	}
	if j.end(wire.ReasonRevoked) {
		j.session.server.count.revoked.Add(1)
		j.session.log.Warn().Uint64("job", j.id).Dur("age", limit).Msg("lease revoked: it was neither released nor renewed in time")
	}
}
