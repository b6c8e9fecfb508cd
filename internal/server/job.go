package server

import (
	"cmp"
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
//
// A job of several ranks loads and holds the payloads of chunk 0 of every
// rank, then those of chunk 1, and so on: its pieces. A chunk is ready when
// all its pieces are.
type job struct {
	id      uint64
	session *session
	group
	chain  *key.Chain           // of the first rank
	best   bool                 // the first wait ends it
	cost   int64                // charged until the client ends it, or leaves
	pin    string               // pin the prefix under this name; empty: do not
	hot    int                  // chunks leased before anything was fetched
	limit  int                  // chunks to bring up at most, the skipped ones included
	fetch  *prefetch.Job[chunk] // brings up the rest; nil if there is none
	over   bool                 // its client expects nobody to ask for the chain again
	queued bool                 // a push waits its turn; the output's mutex guards it
	waits  sync.WaitGroup       // waits that are not answered yet; the reader adds

	mu struct {
		sync.Mutex
		refs   []tier.Ref // the pieces of the ready prefix, held
		taken  int        // pieces that were taken over from fetch
		far    tier.Place // farthest place of the last chunk's pieces
		tokens uint64     // in the ready prefix
		in     [tier.Places]tier.Count
		came   map[int]tier.Place // where pieces came from that could not be leased at once
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

// chunk is a piece that came up, held for the client.
type chunk struct {
	ref  tier.Ref
	from tier.Place
}

// newJob leases what is in DRAM of the match.
func (c *session) newJob(g group, m *tier.Match) *job {
	j := &job{id: c.server.ids.Add(1), session: c, group: g}
	j.chain = &j.chains[0]
	n, err := j.lease(m)
	j.hot, j.limit = n, j.skip()+m.Chunks
	if err == nil && n == m.Hot {
		j.limit = j.more()
	}
	if j.mu.done = n == m.Chunks && j.rests == nil || err != nil; j.mu.done {
		j.mu.err = cmp.Or(err, j.unasked)
		j.touch(0, n)
	}
	return j
}

// lease holds what is in DRAM of the match, and returns how many chunks.
func (j *job) lease(m *tier.Match) (int, error) {
	stack, owner, from := j.stack, j.session.owner, j.skip()
	if j.ranks() == 1 {
		refs := make([]tier.Ref, m.Hot, max(m.Hot, m.Chunks))
		n, err := stack.Hold(owner, ledger.Lease, j.chain, from, from+m.Hot, refs)
		j.mu.refs = refs[:0]
		for _, r := range refs[:n] {
			j.add(chunk{r, tier.CPU})
		}
		return n, err
	}
	held := make([][]tier.Ref, j.ranks())
	n, err := j.leaseRanks(held, m.Hot)
	if err != nil { // what the first ranks took, the others lack: once more with equal shares
		all := 0
		for _, h := range held {
			all += len(h)
		}
		j.trim(held, all/len(held))
		n, _ = j.leaseRanks(held, all/len(held))
	}
	j.trim(held, n)
	for i := range n {
		for r := range held {
			j.add(chunk{held[r][i], tier.CPU})
		}
	}
	return n, err
}

// leaseRanks holds the first n chunks for each rank as far as they are not
// held, and returns how many are held for all.
func (j *job) leaseRanks(held [][]tier.Ref, n int) (int, error) {
	var err error
	for r := range held {
		have := len(held[r])
		if have < n {
			more := make([]tier.Ref, n-have)
			from := j.skip() + have
			got, herr := j.stack.Hold(j.session.owner, ledger.Lease, &j.chains[r], from, from+len(more), more)
			held[r] = append(held[r], more[:got]...)
			if err == nil {
				err = herr
			}
		}
		n = min(n, len(held[r]))
	}
	return n, err
}

// trim lets go of what is held beyond the first n chunks.
func (j *job) trim(held [][]tier.Ref, n int) {
	for r := range held {
		if len(held[r]) > n {
			j.letGo(held[r][n:])
			held[r] = held[r][:n]
		}
	}
}

// ready is how many chunks are held whole; called with the mutex held.
func (j *job) ready() int { return len(j.mu.refs) / j.ranks() }

// add extends the prefix by a piece; called with the mutex held, or before j
// is shared.
func (j *job) add(ch chunk) {
	if len(j.mu.refs)%j.ranks() == 0 {
		j.mu.far = ch.from
	}
	j.mu.far = max(j.mu.far, ch.from)
	j.mu.refs = append(j.mu.refs, ch.ref)
	if len(j.mu.refs)%j.ranks() != 0 {
		return
	}
	tokens := uint64(j.chain.Tokens[j.skip()+j.ready()-1])
	j.mu.tokens += tokens
	j.mu.in[j.mu.far].Chunks++
	j.mu.in[j.mu.far].Tokens += tokens
}

// fetchRest makes ready to fetch what the match promised and the lease does
// not have yet; run does it.
func (j *job) fetchRest(m *tier.Match, deadline time.Time) {
	j.mu.came = make(map[int]tier.Place)
	lanes, lane := j.lanes(j.session.ctx, m)
	j.fetch = prefetch.New(prefetch.Options[chunk]{
		Lanes: lanes, Lane: lane,
		From: j.ranks() * j.hot, To: j.ranks() * (j.limit - j.skip()), // Load says where it ends
		Window: j.session.server.settings().Prefetch.WindowBytes, Deadline: deadline,
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
		defer j.find(ctx)() // nobody asks any more
		j.fetch.Run(ctx)
	})
}

// isBudget reports whether a lease was refused for want of a budget, which
// chunks of the same job may have used up.
func isBudget(err error) bool {
	return errors.Is(err, ledger.ErrOverBudget) || errors.Is(err, ledger.ErrBusy)
}

// Load implements prefetch.Source for piece i.
func (j *job) Load(ctx context.Context, i int) (chunk, int64, error) {
	rank, at := i%j.ranks(), j.skip()+i/j.ranks()
	if err := j.exists(ctx, rank, at); err != nil {
		return chunk{}, 0, err
	}
	by := tier.By{Owner: j.session.owner, Job: j.id}
	ref, from, err := j.stack.LoadBy(ctx, by, &j.chains[rank], at, j.search)
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
	had, ended := j.mu.taken, j.mu.ended
	j.mu.Unlock()
	if ended {
		return false
	}
	var scratch [16]chunk
	came := j.fetch.Ready(had, scratch[:0])

	j.mu.Lock()
	if j.mu.ended {
		j.mu.Unlock()
		return false // whoever ended it gives back what is ready
	}
	before, ends := j.ready(), st.Done && !j.mu.done
	for _, ch := range came[min(j.mu.taken-had, len(came)):] { // another collect may have been here
		j.add(ch)
		j.mu.taken++
	}
	now := j.ready()
	var pieces []tier.Ref
	if ends {
		j.mu.done, j.mu.err = true, cmp.Or(st.Err, j.unasked)
		pieces = j.mu.refs[now*j.ranks():] // of a chunk that is not whole
		j.mu.refs = j.mu.refs[:now*j.ranks()]
	}
	if now > before {
		j.rejuvenate()
	}
	j.mu.Unlock()
	j.letGo(pieces)
	j.pinReady(before, now)
	if ends {
		j.touch(0, now)
	}
	return now > before || ends
}

// leased returns chunk i of the prefix, of the first rank, if it is held; the
// caller releases it.
func (j *job) leased(i int) (arena.Block, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i < 0 || i >= j.ready() {
		return arena.Block{}, false
	}
	return j.mu.refs[i*j.ranks()].Block.Retain(), true
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
	refs, taken := j.close()
	j.mu.Unlock()
	j.giveBack(refs, taken)
	return true
}

// close ends the lease and returns what it held, and how many pieces were
// taken over from fetch; called with the mutex held.
func (j *job) close() (refs []tier.Ref, taken int) {
	j.mu.ended = true
	if !j.mu.done {
		j.mu.done, j.mu.err = true, prefetch.ErrCancelled
	}
	if j.mu.expiry != nil {
		j.mu.expiry.Stop()
	}
	refs, j.mu.refs = j.mu.refs, nil
	return refs, j.mu.taken
}

// giveBack lets go of what the lease held, and of what came up since.
func (j *job) giveBack(refs []tier.Ref, taken int) {
	j.session.server.count.hit(j.mu.in) // nobody changes it after the end
	var late []tier.Ref
	if j.fetch != nil {
		j.fetch.Cancel()
		for _, ch := range j.fetch.Ready(taken, nil) {
			late = append(late, ch.ref)
		}
	}
	bytes := int64(0)
	if len(refs) > 0 {
		bytes = int64(refs[0].Block.Len())
	}
	n := len(refs) / j.ranks()
	j.letGo(refs)
	j.letGo(late)
	for r := range j.chains {
		j.stack.Passed(&j.chains[r], j.chain.Skip, j.chain.Skip+n, bytes)
	}
	if j.over {
		for r := range j.chains {
			j.stack.Cool(&j.chains[r])
		}
	}
}

func (j *job) letGo(refs []tier.Ref) {
	j.stack.Release(j.session.owner, ledger.Lease, refs)
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
		j.mu.expiry = time.AfterFunc(j.session.leaseAge, func() { j.session.during(j.expire) })
	}
	j.rejuvenate()
	return true
}

// rejuvenate is called with the mutex held.
func (j *job) rejuvenate() {
	if j.mu.expiry != nil {
		limit := j.session.leaseAge
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
	refs, taken := j.close()
	j.mu.Unlock()
	n := len(refs)
	j.giveBack(refs, taken)
	c := j.session
	c.server.count.revoked.Add(1)
	c.log.Warn().Uint64("job", j.id).Msg("lease revoked: " + why)
	if running && c.pushes {
		c.out.push(j)
	}
	return n
}
