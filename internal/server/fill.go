package server

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// fill is one reservation. A slot is given up once: by commit, by abort, or
// by abandon when the client leaves or the fill has grown too old.
type fill struct {
	id      uint64
	session *session
	chain   key.Chain      // of the first group
	spaces  []key.SpaceID  // that it has chunks of
	runs    []run          // all slots; of a prompt without groups one
	said    promptRecord   // what the client said of the prompt
	maxAge  uint32         // seconds that its chunks may stay; 0: any time
	policy  *access.Policy // by which it was let begin
	blind   bool           // its own client may not read the space; see rights.blind
	expiry  *time.Timer
	cost    int64 // charged until it is forgotten
	cut     bool  // more slots were asked for than a reply has room for
	mu      struct {
		sync.Mutex
		slots []slot
		until time.Time
		live  int  // slots granted and not yet given up
		late  int  // slots given up that the client may still be writing
		aged  bool // given up because nobody ended it in time
		told  bool // and the client knows
	}
}

// slots finds the fill and the range of slots that a request names.
func (c *session) slots(req *wire.FillRequest) (*fill, int, int, error) {
	_, f := c.held(req.Fill)
	if f == nil {
		return nil, 0, 0, refuse(wire.CodeUnknownFill, "fill %d is not live on this connection: all of it is committed or aborted, or never was", req.Fill)
	}
	n := int64(len(f.mu.slots)) // never changes once f is in the table
	from, to := int64(req.First), int64(req.First)+int64(req.Count)
	if req.Count == 0 {
		to = n
	}
	if from >= n || to > n {
		return nil, 0, 0, refuse(wire.CodeNotReserved, "slots %d to %d of fill %d do not exist; it has %d", from, to, req.Fill, n)
	}
	return f, int(from), int(to), nil
}

func handleCommit(c *reader, _ wire.Header, req wire.FillRequest) (wire.Message, error) {
	f, from, to, err := c.session.slots(&req)
	if err != nil {
		return nil, err
	}
	for _, id := range f.spaces {
		err = cmp.Or(err, c.rights.may(id))
	}
	if err != nil {
		if taken, late := f.take(from, to); late == nil { // it keeps nothing of the window
			f.abort(taken)
		}
		f.forgetIfDone()
		return nil, err
	}
	blind := slices.ContainsFunc(f.spaces, c.rights.blind)
	if len(c.replies) > 0 && f.bytes(from, to) >= longCommit {
		c.sendReplies()
	}
	results, err := f.commit(blind, from, to)
	f.forgetIfDone()
	return &wire.StoreReply{Results: results}, err
}

// longCommit is how many bytes take longer to copy and hash than replies to be
// sent. Those to requests that came ahead of such a commit are sent before it, so
// that their client can fill the next slots meanwhile.
const longCommit = 64 << 10

// bytes is what slots have reserved that are not given up.
func (f *fill) bytes(from, to int) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := from; i < to; i++ {
		if s := &f.mu.slots[i]; s.ref.Valid() {
			n += s.ref.Block.Len()
		}
	}
	return n
}

// commit makes slots visible, run by run.
func (f *fill) commit(blind bool, from, to int) (wire.Results, error) {
	taken, err := f.take(from, to)
	if err != nil {
		return nil, err
	}
	c := f.session
	results := make(wire.Results, 0, 16*(to-from))
	for i := 0; i < len(taken); {
		if !taken[i].ref.Valid() {
			results = results.Add(wire.Stored{Code: wire.CodeNotReserved})
			i++
			continue
		}
		r, n := f.runAt(from+i, to), 1
		for n < r.n && taken[i+n].ref.Valid() {
			n++
		}
		results, err = f.store(blind, results, r.chain, r.chunk, taken[i:i+n])
		if i += n; err != nil {
			f.abort(taken[i:])
			return nil, err
		}
	}
	if f.said.done {
		c.server.o.Store.Planning.MarkCold(&f.chain)
	}
	return results, nil
}

// store makes slots visible that have the chunks of a chain from first on, and adds
// their results.
func (f *fill) store(blind bool, results wire.Results, chain *key.Chain, first int, run []slot) (wire.Results, error) {
	c := f.session
	refs, sums, sizes, stored := make([]tier.Ref, len(run)), make([]uint64, len(run)), make([]uint64, len(run)), make([]bool, len(run))
	var look arena.Look
	for i, looked := 0, 0; i < len(run); i++ {
		s := run[i]
		if i == looked {
			var n int
			look, n = c.staging.look(run[i:])
			looked += n
		}
		var err error
		if sums[i], err = f.seal(s, look); err != nil {
			c.server.o.Store.Filler.Abort(refs[:i])
			f.abort(run[i:])
			return nil, err
		}
		refs[i], sizes[i] = s.ref, uint64(s.ref.Block.Len())
	}
	c.server.o.Store.Filler.Commit(chain, first, refs, f.said.allows(f.maxAge), stored)
	if chain == &f.chain { // what its client said is of this one
		c.server.o.Store.Planning.Passed(chain, first, first+len(run), int64(sizes[0]))
		c.server.hints.stored(c.uid, &f.said, chain, first, first+len(run))
	}
	model := c.server.model(chain.Space)
	for i, sum := range sums {
		if !stored[i] {
			results = results.Add(compareStored(c, chain, first+i, sum, blind))
			continue
		}
		c.server.count.stored(1, sizes[i])
		model.storedBytes.Add(sizes[i])
		results = results.Add(wire.Stored{Code: wire.CodeOK, Sum: sum})
	}
	return results, nil
}

func handleAbort(c *reader, _ wire.Header, req wire.FillRequest) (wire.Message, error) {
	f, from, to, err := c.session.slots(&req)
	if err != nil {
		return nil, err
	}
	taken, err := f.take(from, to)
	f.abort(taken)
	f.forgetIfDone()
	return wire.EmptyReply{}, err
}

// abort gives back slots that the client has promised not to write any more,
// or was never told of.
func (f *fill) abort(taken []slot) {
	for _, s := range taken {
		if s.ref.Valid() {
			f.session.staging.free(s.window, s.ref.Block.Len())
			f.session.server.o.Store.Filler.Abort([]tier.Ref{s.ref})
		}
	}
}

// abandon gives up the blocks of slots that the client may still be writing:
// because it has left, or has not ended the fill in time. Their parts of the
// window stay taken.
func (f *fill) abandon(taken []slot) {
	for _, s := range taken {
		if s.ref.Valid() {
			f.session.server.o.Store.Filler.Abort([]tier.Ref{s.ref})
		}
	}
}

// close gives up the slots that are left, when the connection has ended.
func (f *fill) close() {
	f.expiry.Stop()
	f.mu.Lock()
	taken := f.takeLive(0, len(f.mu.slots))
	f.mu.Unlock()
	f.abandon(taken)
}

// expire gives up a fill that was neither committed nor aborted in time. It
// stays in the table until the client has been told.
func (f *fill) expire() {
	f.mu.Lock()
	renewed := time.Now().Before(f.mu.until)
	f.mu.Unlock()
	if !renewed {
		f.revoke("it was neither committed, aborted nor renewed in time")
	}
}

// age starts the age of the fill anew. It reports false where it was given up.
func (f *fill) age() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.aged {
		return false
	}
	limit := f.session.leaseAge
	f.mu.until = time.Now().Add(limit)
	f.expiry.Reset(limit)
	return true
}

// revoke is expire for any reason. It returns how many slots were live.
//
// The client does not know yet, and may be writing. So the parts of the window
// that the slots have are kept from other fills, whose bytes a late write would
// ruin, until the client has named the slots in a commit or an abort.
func (f *fill) revoke(why string) int {
	f.mu.Lock()
	n := f.mu.live
	if n == 0 {
		f.mu.Unlock()
		return 0
	}
	f.mu.aged = true
	for i := range f.mu.slots {
		if s := &f.mu.slots[i]; s.ref.Valid() {
			s.late = s.ref.Block.Len()
			f.mu.late++
		}
	}
	taken := f.takeLive(0, len(f.mu.slots))
	f.mu.Unlock()
	f.abandon(taken)
	f.session.server.count.revoked.Add(1)
	f.session.server.revoked.log(&f.session.log, "fill", f.id, why)
	if c := f.session; c.pushes {
		c.server.count.pushes.Add(1)
		c.out.send(wire.AppendPush(nil, wire.OpReserve, f.id, &wire.CodeReply{Code: wire.CodeRevoked}))
	}
	return n
}

// forgetIfDone drops a fill of which nothing is left to do or to tell.
func (f *fill) forgetIfDone() {
	f.mu.Lock()
	left := f.mu.live > 0 || f.mu.late > 0 || f.mu.aged && !f.mu.told
	f.mu.Unlock()
	if left {
		return
	}
	f.expiry.Stop()
	c := f.session
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.fills[f.id] == f && !c.mu.closed {
		c.account.Release(f.cost)
		delete(c.mu.fills, f.id)
		c.tenant.jobs.Add(-1)
	}
}

// slot is one chunk of a reservation.
type slot struct {
	status store.GrantStatus
	ref    tier.Ref // valid while granted and not given up
	window int64    // where its bytes lie in the staging window
	late   int      // bytes of the window that it keeps, though given up; see revoke
	there  uint32   // bytes of what exists already; 0: not known
}

// take takes the live slots of a range over; the others are zero. An aged
// fill has none. The client that names slots writes to them no more, so that
// their parts of the window are free then.
func (f *fill) take(from, to int) ([]slot, error) {
	f.mu.Lock()
	if f.mu.aged {
		f.mu.told = true
		late := f.takeLate(from, to)
		f.mu.Unlock()
		for _, s := range late {
			f.session.staging.free(s.window, s.late)
		}
		return nil, refuse(wire.CodeRevoked, "fill %d was given up: it was neither committed nor aborted within %v; reserve again", f.id, f.session.leaseAge)
	}
	defer f.mu.Unlock()
	return f.takeLive(from, to), nil
}

// takeLate takes over what slots of an aged fill keep of the window. The mutex
// is held.
func (f *fill) takeLate(from, to int) (late []slot) {
	for i := from; i < to; i++ {
		if s := &f.mu.slots[i]; s.late > 0 {
			late = append(late, *s)
			s.late = 0
			f.mu.late--
		}
	}
	return late
}

// takeLive is called with the mutex held.
func (f *fill) takeLive(from, to int) []slot {
	out := make([]slot, to-from)
	for i := range out {
		s := &f.mu.slots[from+i]
		if !s.ref.Valid() {
			continue
		}
		out[i] = *s
		s.ref = tier.Ref{}
		f.mu.live--
	}
	return out
}

// seal makes a slot's bytes final and returns their checksum. A staged
// payload is copied first and hashed where it lies then: the client can still write
// to the window, not to the arena.
func (f *fill) seal(s slot, look arena.Look) (sum uint64, err error) {
	staging, b := f.session.staging, s.ref.Block
	if sum, err = b.WriteFrom(staging.window, s.window, look); err != nil {
		return 0, err
	}
	b.SealSum(sum)
	staging.free(s.window, b.Len())
	return sum, nil
}

// run is slots of a fill, one after the other, that have chunks of one chain without a gap.
type run struct {
	chain *key.Chain
	chunk int  // of the first slot
	slot  int  // the first one
	n     int  // slots
	full  bool // of a group that is full
	// unwanted says that no length that is worth having needs them; see store.Wanted.
	unwanted bool
}

const runBytes = 40

// runAt is the rest of the run that slot i is in, at most up to slot to.
func (f *fill) runAt(i, to int) run {
	at, _ := slices.BinarySearchFunc(f.runs, i, func(r run, i int) int { return cmp.Compare(r.slot+r.n, i+1) })
	r := f.runs[at]
	r.chunk, r.slot, r.n = r.chunk+i-r.slot, i, min(r.slot+r.n, to)-i
	return r
}

// add adds the slot of a chunk, of which the run r tells the rest.
func (f *fill) add(r run) {
	if n := len(f.runs); n > 0 {
		last := &f.runs[n-1]
		if r.slot = last.slot + last.n; r.chain == last.chain && r.chunk == last.chunk+last.n && r.unwanted == last.unwanted {
			last.n++
			return
		}
	}
	f.runs = append(f.runs, r)
}

// layOut makes the runs of a fill, and returns the bytes of each slot. from..to are the
// chunks of the chain that are asked for; with groups those of each group that end in the
// tokens of these, those of the first group first.
func (f *fill) layOut(c *reader, req *wire.ReserveRequest, from, to int) ([]uint32, error) {
	f.cost = liveBytes + liveChunkBytes*int64(f.chain.Len())
	if req.Groups.Len() == 0 {
		f.runs = []run{{chain: &f.chain, chunk: from, n: to - from, full: true}}
		return c.sizes(req.Sizes, to-from, c.session.largestSlot())
	}
	family, err := c.resolver.familyOf(&f.chain, &req.Chain, &wire.Shared{Groups: req.Groups, Grain: req.Grain})
	if err != nil {
		return nil, err
	}
	family.Skip = 0
	chains := make([]*key.Chain, len(family.Chains))
	for g := range chains {
		own := family.Chains[g][0]
		chains[g], family.Chains[g][0].Skip = &own, 0
	}
	chains[0], f.spaces = &f.chain, nil
	for _, chain := range chains {
		f.spaces = append(f.spaces, chain.Space)
	}
	at, err := reachedBy(c, &f.chain, family)
	if err != nil {
		return nil, err
	}
	wanted := c.server.o.Store.Lookups.Wanted(family, at)
	return f.layOutGroups(c, req, family, chains, wanted, from, to)
}

// reachedBy is how far a prompt reached when the connection asked for it, or first stored a
// part of it: the parts that it has stored since do not move the junction.
func reachedBy(c *reader, chain *key.Chain, f *store.Family) (store.Reached, error) {
	if chain.Len() == 0 {
		return store.Reached{}, nil
	}
	n := c.prompts.take(chain)
	if n.reached == nil {
		at, err := c.server.o.Store.Lookups.Reached(c.session.ctx, f)
		if err != nil {
			return at, err
		}
		n.reached = &at
	}
	return *n.reached, nil
}

// layOutGroups makes a slot for each chunk that is offered, and returns its bytes.
func (f *fill) layOutGroups(c *reader, req *wire.ReserveRequest, family *store.Family, chains []*key.Chain, wanted [][]bool, from, to int) ([]uint32, error) {
	spans, all := make([][2]int, len(chains)), 0
	for i, chain := range chains {
		chunk, first := family.Groups[i].Chunk, family.Groups[0].Chunk
		spans[i] = [2]int{from * first / chunk, min(to*first/chunk, chain.Len())}
		all += max(0, spans[i][1]-spans[i][0])
	}
	if n := req.Sizes.Len(); n != len(chains) && n != all {
		return nil, refuse(wire.CodeBadRequest, "%d sizes for %d chunks of %d groups; give one for each group, or one for each chunk of the first group, then of the next", n, all, len(chains))
	}
	var sizes []uint32
	limit, k := c.session.largestSlot(), 0
	for i, chain := range chains {
		for chunk := spans[i][0]; chunk < spans[i][1]; chunk++ {
			size := req.Sizes.At(i)
			if req.Sizes.Len() == all {
				size = req.Sizes.At(k)
			}
			if k++; size == 0 {
				continue
			}
			if int64(size) > limit {
				return nil, tooLarge(limit, "chunk %d of group %d has %d bytes, the limit is %d", chunk, i, size, limit)
			}
			if sizes = append(sizes, size); i == 0 {
				c.payload = size
			}
			f.add(run{chain: chain, chunk: chunk, n: 1, full: family.Groups[i].Kind == index.Full, unwanted: wanted[i] != nil && !wanted[i][chunk]})
		}
		if family.Groups[i].Chunk != family.Groups[0].Chunk {
			f.cost += chunkBytes * int64(chain.Len())
		}
	}
	if len(sizes) == 0 {
		return nil, refuse(wire.CodeBadRequest, "none of the %d chunks of %d groups is offered: all have 0 bytes", all, len(chains))
	}
	f.cost += runBytes * int64(len(f.runs))
	return sizes, nil
}

// ask takes room for the longest leading run of slots that fits. It waits while nothing
// is granted only, and a try ends with tier.ErrMustWait then only.
func (f *fill) ask(ctx context.Context, want store.Reservation, sizes []uint32, grants []store.Grant) (n int, err error) {
	said := want.Force
	for n < len(sizes) {
		r := f.runAt(n, len(sizes))
		end := n + r.n
		if r.unwanted {
			for ; n < end; n++ {
				grants[n].Status = store.Unwanted
			}
			continue
		}
		want.Force = said || !r.full // the lengths that need it have decided
		got, err := f.session.server.o.Store.Filler.Reserve(ctx, want, r.chain, r.chunk, sizes[n:end], grants[n:end])
		if slices.ContainsFunc(grants[n:n+got], func(g store.Grant) bool { return g.Status == store.Granted }) {
			want.Patience = min(want.Patience, tier.Patient)
		}
		if n += got; err != nil || n < end {
			return n, err
		}
	}
	return n, nil
}
