package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
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
	pin     string               // pin the prefix under this name; empty: do not
	hot     int                  // chunks leased before anything was fetched
	fetch   *prefetch.Job[chunk] // brings up the rest; nil if there is none
	rest    *tier.Rest           // finds out how much more there is; nil if nothing can be
	over    bool                 // its client expects nobody to ask for the chain again
	queued  bool                 // a push waits its turn; the output's mutex guards it
	waits   sync.WaitGroup       // waits that are not answered yet; the reader adds

	mu struct {
		sync.Mutex
		refs   []tier.Ref // the ready prefix, held
		tokens uint64     // in it
		in     [tier.Places]tier.Count
		came   map[int]tier.Place // where chunks came from that could not be leased at once
		sent   int                // chunks whose refs the client was sent
		done   bool
		err    error // why a job that is done is short; nil = complete

		ended   bool // nothing is held any more
		revoked bool // because the lease grew too old
		silent  bool // the client has ended it: no more pushes
		until   time.Time
		expiry  *time.Timer
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
	if err == nil && n == m.Hot {
		j.rest = c.server.o.Stack.Rest(&j.chain, m, search)
	}
	if j.mu.done = n == m.Chunks && j.rest == nil || err != nil; j.mu.done {
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

// fetchRest makes ready to fetch what the match promised and the lease does
// not have yet; run does it.
func (j *job) fetchRest(matched int, deadline time.Time) {
	j.mu.came = make(map[int]tier.Place)
	if j.rest != nil {
		matched = j.chain.Len() - j.chain.Skip // Load says where it ends
	}
	j.fetch = prefetch.New(prefetch.Options[chunk]{
		From: j.chain.Skip + j.hot, To: j.chain.Skip + matched,
		Window: j.session.server.o.Prefetch.WindowBytes, Deadline: deadline,
		Discard: func(ch chunk) { j.letGo([]tier.Ref{ch.ref}) },
		Yields:  isBudget,
		Changed: j.changed,
	}, j)
}

func (j *job) run() {
	// Not the connection's context: whoever ends the job, as the end of the
	// connection does, cancels the loads under way.
	ctx := context.WithoutCancel(j.session.ctx)
	j.session.waiting.Go(func() {
		var finding sync.WaitGroup
		if j.rest != nil {
			ctx, stop := context.WithCancel(ctx)
			finding.Go(func() { j.rest.Find(ctx) })
			defer finding.Wait()
			defer stop() // nobody asks any more
		}
		j.fetch.Run(ctx)
	})
}

// isBudget reports whether a lease was refused for want of a budget, which
// chunks of the same job may have used up.
func isBudget(err error) bool {
	return errors.Is(err, ledger.ErrOverBudget) || errors.Is(err, ledger.ErrBusy)
}

// Load implements prefetch.Source.
func (j *job) Load(ctx context.Context, i int) (chunk, int64, error) {
	if j.rest != nil && i >= j.rest.Begin() && !j.rest.Reach(ctx, i) {
		return chunk{}, 0, prefetch.ErrEnd
	}
	by := tier.By{Owner: j.session.owner, Job: j.id}
	ref, from, err := j.session.server.o.Stack.LoadBy(ctx, by, &j.chain, i, j.search)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		if isBudget(err) && from != tier.CPU { // it came up, and will be found in DRAM if it is tried again
			j.mu.came[i] = from
		}
		return chunk{}, 0, err
	}
	if below, ok := j.mu.came[i]; ok {
		from = below
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
	have, ended := len(j.mu.refs), j.mu.ended
	j.mu.Unlock()
	if ended {
		return false
	}
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
	if now > before {
		j.rejuvenate()
	}
	j.mu.Unlock()
	j.pinReady(before, now)
	if ends {
		j.session.server.o.Stack.Touch(&j.chain, j.chain.Skip, j.chain.Skip+now)
	}
	return now > before || ends
}

// leased returns chunk i of the prefix, if it is held; the caller releases it.
func (j *job) leased(i int) (arena.Block, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i < 0 || i >= len(j.mu.refs) {
		return arena.Block{}, false
	}
	return j.mu.refs[i].Block.Retain(), true
}

// end gives the lease back, for good: no push follows. It reports whether the
// job still had it.
func (j *job) end() bool {
	j.mu.Lock()
	j.mu.silent = true
	if j.mu.ended {
		j.mu.Unlock()
		return false
	}
	refs := j.close()
	j.mu.Unlock()
	j.giveBack(refs)
	return true
}

// close ends the lease and returns what it held; called with the mutex held.
func (j *job) close() []tier.Ref {
	j.mu.ended = true
	if !j.mu.done {
		j.mu.done, j.mu.err = true, prefetch.ErrCancelled
	}
	if j.mu.expiry != nil {
		j.mu.expiry.Stop()
	}
	refs := j.mu.refs
	j.mu.refs = nil
	return refs
}

// giveBack lets go of what the lease held, and of what came up since.
func (j *job) giveBack(refs []tier.Ref) {
	j.session.server.count.hit(j.mu.in) // nobody changes it after the end
	var late []tier.Ref
	if j.fetch != nil {
		j.fetch.Cancel()
		for _, ch := range j.fetch.Ready(len(refs)-j.hot, nil) {
			late = append(late, ch.ref)
		}
	}
	j.letGo(refs)
	j.letGo(late)
	if j.over {
		j.session.server.o.Stack.Cool(&j.chain)
	}
}

func (j *job) letGo(refs []tier.Ref) {
	j.session.server.o.Stack.Release(j.session.owner, ledger.Lease, refs)
}

// age starts the age of the lease anew. It reports whether the job still has
// its lease.
func (j *job) age() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.ended {
		return false
	}
	if j.mu.expiry == nil {
		j.mu.expiry = time.AfterFunc(j.session.server.o.LeaseMaxAge, func() { j.session.during(j.expire) })
	}
	j.rejuvenate()
	return true
}

// rejuvenate is called with the mutex held.
func (j *job) rejuvenate() {
	if j.mu.expiry != nil {
		limit := j.session.server.o.LeaseMaxAge
		j.mu.until = time.Now().Add(limit)
		j.mu.expiry.Reset(limit)
	}
}

// expire revokes the lease unless it was renewed this very moment.
func (j *job) expire() {
	j.mu.Lock()
	if time.Now().Before(j.mu.until) {
		j.mu.Unlock()
		return // the timer is set again
	}
	j.revoke("it was neither released nor renewed in time")
}

// revoke ends a lease that its client has not ended, and returns how many
// chunks it held. It is called with the mutex held, and unlocks it.
func (j *job) revoke(why string) int {
	if j.mu.ended {
		j.mu.Unlock()
		return 0
	}
	running := !j.mu.done
	j.mu.revoked = true
	refs := j.close()
	j.mu.Unlock()
	n := len(refs)
	j.giveBack(refs)
	c := j.session
	c.server.count.revoked.Add(1)
	c.log.Warn().Uint64("job", j.id).Msg("lease revoked: " + why)
	if running && c.pushes {
		c.out.push(j)
	}
	return n
}
