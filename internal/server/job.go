package server

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
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
//
// The states of the job, which says whether the prefix may still grow:
//
//	     all is in DRAM, or no more is to be had
//	begin -------------------------------------> done (mu.done, mu.err says why)
//	  |                                            ^
//	  | there is more to fetch                     | complete; a load failed or was late;
//	  v                                            | best effort: its client's first wait;
//	running (fetch) -------------------------------+ its lease has ended
//
// and of its lease, which begins with the job and grows with it:
//
//	held ---- cancel, release, the client left ----> ended (mu.ended, mu.silent): no push
//	 |                                               follows; the job is in no table
//	 |
//	 +------- too old, an administrator, or its
//	          user may not read the space -------> ended (mu.ended, mu.revoked): the job
//	                                               is in the table until release or
//	                                               cancel, which are told so
type job struct {
	id      uint64
	session *session
	prompt  prompt
	best    bool           // the first wait ends it
	cost    int64          // charged until the client ends it, or leaves
	pin     string         // pin the prefix under this name; empty: do not
	hot     int            // chunks leased before anything was fetched
	limit   int            // chunks to bring up at most, the skipped ones included
	until   time.Time      // no more is loaded then; zero: there is no such time
	loads   bool           // there is something to bring up
	whole   *lengthJob     // of a hybrid model, all of a length or nothing; nil for others
	over    bool           // its client expects nobody to ask for the chain again
	queued  bool           // a push waits its turn; the output's mutex guards it
	waits   sync.WaitGroup // waits that are not answered yet, and pinning; see beginWait
	missed  missed
	singles store.Singles // pieces behind the match, each held by itself until giveBack

	mu struct {
		sync.Mutex
		refs    []tier.Ref           // the pieces of the ready prefix, held
		taken   int                  // pieces that were taken over from fetch
		fetch   *prefetch.Job[chunk] // brings up the rest, or a part of it; nil: nothing yet
		stop    error                // prefetch.ErrDeadline or ErrCancelled: no more is loaded
		far     tier.Place           // farthest place of the last chunk's pieces
		tokens  uint64               // in the ready prefix
		in      [tier.Places]store.Count
		endedAt int                        // chunks that were ready when the lease ended
		came    map[store.Piece]tier.Place // where pieces came from that could not be leased at once
		sent    int                        // chunks whose refs the client was sent
		done    bool
		err     error // why a job that is done is short; nil = complete

		told    bool // its client knows it; before that nothing is pushed
		ended   bool // nothing is held any more
		revoked bool // ended, and not by the client
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

// newJob leases the chunks of a prompt that are in DRAM; what a hybrid model needs
// start does.
func newJob(c *session, p *prompt) *job {
	j := &job{id: c.server.ids.Add(1), session: c, prompt: *p}
	if !p.IsPlain() {
		j.prompt.named, j.whole = slices.Clone(p.named), newLengthJob(j)
		return j
	}
	n, err := j.lease(p.plan.Hot)
	j.hot, j.limit = n, p.plan.Next
	if err == nil && n == p.plan.Hot {
		j.limit = j.prompt.more()
	}
	if j.mu.done = n == p.plan.Chunks && j.prompt.rests == nil || err != nil; j.mu.done {
		j.mu.err = cmp.Or(err, j.prompt.unsearched)
		j.prompt.touch(0, n)
	}
	return j
}

// ready is how many chunks are held whole; called with the mutex held.
func (j *job) ready() int { return len(j.mu.refs) / j.stride() }

// stride is the refs of a chunk. Those of a prompt with groups are counted one by one.
func (j *job) stride() int {
	if j.whole != nil {
		return 1
	}
	return j.prompt.ranks()
}

// fetchRest makes ready to fetch what the plan promised and the lease does
// not have yet; run does it.
func (j *job) fetchRest() {
	from, to := j.prompt.ranks()*j.hot, j.prompt.ranks()*(j.limit-j.prompt.skip()) // Load says where it ends
	lanes, lane := lanesOf(from, to, j.prompt.far)
	j.loads, j.mu.fetch = true, j.newFetch(nil, prefetch.Options[chunk]{
		Lanes: lanes, Lane: lane, From: from, To: to,
		ChunkBytes: j.prompt.sizeAt(j.prompt.chain(), j.prompt.skip()+j.hot, arena.MaxPayload), Changed: j.changed,
	})
}

// newFetch makes what loads pieces for the job; see source.
func (j *job) newFetch(list []load, o prefetch.Options[chunk]) *prefetch.Job[chunk] {
	o.Window, o.Places, o.Deadline = windowOf(j.session.server), j.session.tenant.loads, j.until
	o.Discard, o.Yields = func(ch chunk) { j.unlease([]tier.Ref{ch.ref}) }, isBudget
	return prefetch.New(o, source{j, list})
}

// tell notes that the client knows of the job, and pushes the changes since its reply.
func (j *job) tell() {
	j.mu.Lock()
	j.mu.told = true
	revoked := j.mu.revoked
	more := !j.mu.ended && j.mu.sent < j.ready()
	j.mu.Unlock()
	if revoked || more {
		j.session.push(j)
	}
}

// beginWait has the end of the job wait for a request that waits for it, or for pins
// that are being set. It reports false if the client has ended the job.
func (j *job) beginWait() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.silent {
		return false
	}
	j.waits.Add(1)
	return true
}

// fetching is what loads for the job now; nil before it loads anything.
func (j *job) fetching() *prefetch.Job[chunk] {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.fetch
}

// halt ends the loading: as the deadline would by prefetch.ErrDeadline, and for good,
// with the loads under way, by ErrCancelled.
func (j *job) halt(why error) {
	j.mu.Lock()
	cancel := errors.Is(why, prefetch.ErrCancelled)
	if j.mu.stop == nil || cancel {
		j.mu.stop = why
	}
	fetch := j.mu.fetch
	j.mu.Unlock()
	switch {
	case fetch == nil:
	case cancel:
		fetch.Cancel()
	default:
		fetch.Stop()
	}
}

// await returns when so many tokens are ready, or no more will be, or ctx ends.
func (j *job) await(ctx context.Context, tokens uint64) {
	if j.whole == nil {
		j.fetching().Wait(ctx, j.prompt.ranks()*(j.chunksFor(tokens)-j.hot))
		j.changed()
		return
	}
	base.Await(ctx, j.whole.settled)
}

// run fetches the rest. The client has been told of the job.
func (j *job) run() {
	// Not the connection's context: the end of the job, which the end of the
	// connection brings, cancels the loads under way.
	ctx := context.WithoutCancel(j.session.ctx)
	j.mu.came = make(map[store.Piece]tier.Place)
	j.session.waiting.Go(func() {
		if j.whole != nil {
			j.whole.bringLength(ctx)
			return
		}
		defer j.prompt.findRest(ctx)() // nobody asks any more
		j.fetching().Run(ctx)
	})
}

// isBudget reports whether a lease was refused for want of a budget, which
// chunks of the same job may have used up.
func isBudget(err error) bool {
	return errors.Is(err, ledger.ErrOverBudget) || errors.Is(err, ledger.ErrBusy)
}

// source is the pieces that a job brings up: those of a list, or all of its ranks, chunk by
// chunk, as far as the prompt turns out to be there.
type source struct {
	*job
	list []load
}

// Load implements prefetch.Source.
func (j source) Load(ctx context.Context, i int) (chunk, int64, error) {
	p := store.Piece{Rank: i % j.prompt.ranks(), Chunk: j.prompt.skip() + i/j.prompt.ranks()}
	if j.list != nil {
		p = j.list[i].Piece
	} else if err := j.prompt.exists(ctx, p.Rank, p.Chunk); err != nil {
		return chunk{}, 0, err
	}
	by := store.Requester{Owner: j.session.owner, Job: j.id}
	ref, from, err := j.prompt.store.Loader.Load(ctx, by, &j.prompt.Chains[p.Group][p.Rank], p.Chunk, j.prompt.search)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		if isBudget(err) && from != tier.CPU { // it came up, and will be found in DRAM if it is tried again
			j.mu.came[p] = from
		}
		return chunk{}, 0, err
	}
	if below, ok := j.mu.came[p]; ok {
		from = below
	}
	return chunk{ref, from}, int64(ref.Block.Len()), nil
}

// changed takes over what became ready, and tells the client.
func (j *job) changed() {
	if j.collect() {
		j.session.push(j)
	}
}

// collect takes over what the fetch has ready, and its end. It reports
// whether anything changed. Chunks to pin are pinned first: what the job shows
// as ready is pinned, however many calls collect at a time.
func (j *job) collect() bool {
	j.mu.Lock()
	fetch, had, ended := j.mu.fetch, j.mu.taken, j.mu.ended
	j.mu.Unlock()
	if ended {
		return false
	}
	st := fetch.State()
	var scratch [16]chunk
	came := fetch.Ready(had, scratch[:0])
	j.pinReady(j.hot+had/j.prompt.ranks(), j.hot+(had+len(came))/j.prompt.ranks())

	j.mu.Lock()
	if j.mu.ended {
		j.mu.Unlock()
		return false // giveBack releases what is ready
	}
	before, ends := j.ready(), st.Done && !j.mu.done
	for _, ch := range came[min(j.mu.taken-had, len(came)):] { // another collect may have been here
		j.add(ch)
		j.mu.taken++
	}
	now := j.ready()
	var pieces []tier.Ref
	if ends {
		j.mu.done, j.mu.err = true, cmp.Or(st.Err, j.prompt.unsearched)
		j.missed.settled(j)
		pieces = j.mu.refs[now*j.prompt.ranks():] // of a chunk that is not whole
		j.mu.refs = j.mu.refs[:now*j.prompt.ranks()]
	}
	if now > before {
		j.rejuvenate()
	}
	j.mu.Unlock()
	j.unlease(pieces)
	if ends {
		j.prompt.touch(0, now)
	}
	return now > before || ends
}

// lease holds the first chunks of the plan, which are in DRAM, and returns how many.
func (j *job) lease(hot int) (int, error) {
	held := make([][]tier.Ref, j.prompt.ranks())
	n, err := j.leaseRanks(held, hot)
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
			from := j.prompt.skip() + have
			got, herr := j.prompt.store.Leases.Hold(j.session.owner, ledger.Lease, &j.prompt.Chains[0][r], from, from+len(more), more)
			held[r] = append(held[r], more[:got]...)
			err = cmp.Or(err, herr)
		}
		n = min(n, len(held[r]))
	}
	return n, err
}

// holdSingles holds the pieces behind the plan that are there all the same, and returns
// a bit for each. Where the plan is still to be loaded, the owner's budget of leases is left
// to it, and those in DRAM are passed over.
func (j *job) holdSingles() wire.U32s {
	search := j.prompt.search
	if !j.mu.done {
		search &^= tier.Of(tier.CPU)
	}
	bits, used := make([]uint32, (j.prompt.ranks()*(j.prompt.chain().Len()-j.prompt.skip())+31)/32), 0
	for r := range j.prompt.Chains[0] {
		j.prompt.store.Leases.HoldSingles(&j.singles, j.session.owner, &j.prompt.Chains[0][r], j.prompt.plan.Next, search, func(i int) {
			piece := (i-j.prompt.skip())*j.prompt.ranks() + r
			bits[piece/32] |= 1 << (piece % 32)
			used = max(used, piece/32+1)
		})
	}
	return wire.ViewU32s(bits[:used])
}

// trim releases the chunks held beyond the first n.
func (j *job) trim(held [][]tier.Ref, n int) {
	for r := range held {
		if len(held[r]) > n {
			j.unlease(held[r][n:])
			held[r] = held[r][:n]
		}
	}
}

// add extends the prefix by a piece; called with the mutex held, or before j
// is shared.
func (j *job) add(ch chunk) {
	if len(j.mu.refs)%j.stride() == 0 {
		j.mu.far = ch.from
	}
	j.mu.far = max(j.mu.far, ch.from)
	j.mu.refs = append(j.mu.refs, ch.ref)
	if len(j.mu.refs)%j.stride() != 0 {
		return
	}
	tokens := uint64(j.prompt.chain().Tokens[j.prompt.skip()+j.ready()-1])
	j.mu.tokens += tokens
	j.mu.in[j.mu.far].Chunks++
	j.mu.in[j.mu.far].Tokens += tokens
}

// leased returns chunk i of the prefix, of the first rank, if it is held; the
// caller releases it.
func (j *job) leased(i int) (arena.Block, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i < 0 || i >= j.ready() || j.whole != nil {
		return arena.Block{}, false
	}
	return j.mu.refs[i*j.prompt.ranks()].Block.Retain(), true
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

// close ends the lease and returns the pieces it held, and how many were
// taken over from fetch; called with the mutex held.
func (j *job) close() (refs []tier.Ref, taken int) {
	j.mu.ended, j.mu.endedAt = true, j.ready()
	if !j.mu.done {
		j.mu.done, j.mu.err = true, prefetch.ErrCancelled
	}
	if j.mu.expiry != nil {
		j.mu.expiry.Stop()
	}
	refs, j.mu.refs = j.mu.refs, nil
	return refs, j.mu.taken
}

// giveBack releases the pieces that the lease held, and those that came up since.
func (j *job) giveBack(refs []tier.Ref, taken int) {
	j.session.server.count.hit(j.mu.in) // it does not change after the end
	held := uint64(0)
	for i := range refs {
		held += uint64(refs[i].Block.Len())
	}
	j.session.server.model(j.prompt.chain().Space).had(&j.mu.in, held)
	j.missed.count(j)
	var late []tier.Ref
	j.halt(prefetch.ErrCancelled)
	if fetch := j.fetching(); fetch != nil && j.whole == nil {
		for _, ch := range fetch.Ready(taken, nil) {
			late = append(late, ch.ref)
		}
	}
	bytes := int64(0)
	if len(refs) > 0 {
		bytes = int64(refs[0].Block.Len())
	}
	j.unlease(refs)
	j.unlease(late)
	j.prompt.store.Leases.EndSingles(&j.singles)
	for r := range j.prompt.Chains[0] {
		j.prompt.store.Planning.Passed(&j.prompt.Chains[0][r], j.prompt.skip(), j.prompt.skip()+j.chunks(), bytes)
	}
	if !j.over {
		return
	}
	for _, chains := range j.prompt.Chains {
		for r := range chains {
			j.prompt.store.Planning.MarkCold(&chains[r])
		}
	}
}

// chunks is how many of the first group are ready, or were when the lease ended.
func (j *job) chunks() (n int) {
	for p := range j.mu.in {
		n += j.mu.in[p].Chunks
	}
	return n
}

func (j *job) unlease(refs []tier.Ref) {
	j.prompt.store.Leases.Release(j.session.owner, ledger.Lease, refs)
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
		j.mu.expiry = time.AfterFunc(j.session.leaseAge, func() { j.session.whileOpen(j.expire) })
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
func (j *job) expire() { j.revokeIf(true, "it was neither released nor renewed in time") }

// revoke ends a lease that its client has not ended, and returns how many
// chunks it held.
func (j *job) revoke(why string) int { return j.revokeIf(false, why) }

// revokeIf is revoke; with overdue for a lease that has grown too old only. One
// that has not will be looked at again: its timer was set when it was renewed.
func (j *job) revokeIf(overdue bool, why string) int {
	j.mu.Lock()
	if j.mu.ended || overdue && time.Now().Before(j.mu.until) {
		j.mu.Unlock()
		return 0
	}
	told := j.mu.told // else tell pushes
	j.mu.revoked = true
	refs, taken := j.close()
	j.mu.Unlock()
	n := len(refs)
	j.giveBack(refs, taken)
	c := j.session
	c.server.count.revoked.Add(1)
	c.server.revoked.log(&c.log, "job", j.id, why)
	if told {
		c.push(j)
	}
	return n
}
