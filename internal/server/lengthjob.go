package server

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/prefetch"
	"github.com/kvstored/kvstored/tier"
)

// lengthJob is how the job of a hybrid model comes to what it has. The job brings up the
// pieces of one length, and all of them are ready at once: until then nothing is. Where a
// piece is lost, or the time is up, the job goes for the longest usable length that is
// left, which is shorter, and releases the other pieces. So the refs of a job are always
// those of one length.
type lengthJob struct {
	job     *job
	held    map[store.Piece]chunk
	lost    map[store.Piece]struct{}
	lateFor *index.Kind   // of the group of the first piece that was not up at the deadline
	settled chan struct{} // closed when the job is done

	// What the job has, set once before settled is closed, under its mutex.
	needs  wire.Needs
	tokens []uint32 // of each ref
}

func newLengthJob(j *job) *lengthJob {
	return &lengthJob{
		job: j, held: make(map[store.Piece]chunk), lost: make(map[store.Piece]struct{}), settled: make(chan struct{}),
	}
}

// begin leases what is in DRAM. It ends the job, or reports that there is more to be brought up.
func (a *lengthJob) begin() (loads bool) {
	a.holdNeeds(&a.job.prompt.plan)
	if loads = len(a.lacking(&a.job.prompt.plan)) > 0; !loads {
		a.settle(&a.job.prompt.plan, nil)
	}
	return loads
}

// bringLength brings up the missing pieces of the length, or of a shorter one.
func (a *lengthJob) bringLength(ctx context.Context) {
	aim, m, search := a.job.prompt.plan.End, a.job.prompt.plan, a.job.prompt.search
	var cause error
	for {
		err := a.bring(ctx, &m)
		if err == nil {
			break
		}
		cause = cmp.Or(cause, err)
		if left := a.lacking(&m); errors.Is(err, prefetch.ErrDeadline) && a.lateFor == nil && len(left) > 0 {
			a.lateFor = &a.job.prompt.Groups[left[0].Group].Kind
		}
		if a.stopped() != nil { // nothing more is loaded
			search &= tier.Of(tier.CPU)
		}
		most := m.End
		var merr error
		if m, merr = a.job.prompt.store.Lookups.Plan(ctx, a.job.prompt.Family, search, most, a.lost); merr != nil || errors.Is(a.stopped(), prefetch.ErrCancelled) {
			m = a.job.nothing()
		}
		a.keepOnly(&m)
		a.holdNeeds(&m)
	}
	if m.End == aim {
		cause = nil
	}
	if a.lateFor != nil && m.End < aim {
		a.job.session.server.count.lost[*a.lateFor][lostLate].Add(uint64(aim - m.End))
	}
	a.settle(&m, cause)
}

// nothing is a plan of no more than the client has.
func (j *job) nothing() store.Plan {
	return store.Plan{End: j.prompt.Skip, Needs: make([]store.Need, len(j.prompt.Groups))}
}

// stopped is why no more is loaded; nil if some may be.
func (a *lengthJob) stopped() error {
	a.job.mu.Lock()
	defer a.job.mu.Unlock()
	return a.job.mu.stop
}

// bring loads the missing pieces of m. The error says why a piece, which is
// lost from then on, is not there. One that only shorter lengths need ends nothing.
func (a *lengthJob) bring(ctx context.Context, m *store.Plan) error {
	for {
		lost, err := a.bringSome(ctx, m)
		if err == nil || lost == nil || needs(m, *lost) {
			return err
		}
	}
}

// bringSome loads the missing pieces of m up to one that is lost, if there is such a one.
func (a *lengthJob) bringSome(ctx context.Context, m *store.Plan) (lost *store.Piece, err error) {
	missing := a.lacking(m)
	if len(missing) == 0 {
		return nil, nil
	}
	sizes := a.sizes(m)
	missing = a.withFallbacks(ctx, m, missing, sizes)
	fetch, err := a.fetchSome(missing, sizes)
	if err != nil {
		a.lost[missing[0].Piece] = struct{}{}
		return nil, err
	}
	a.job.session.waiting.Go(func() { fetch.Run(ctx) })
	st := fetch.Wait(ctx, len(missing)) // loads under way at the deadline may take longer
	for i, ch := range fetch.Ready(0, nil) {
		a.held[missing[i].Piece] = ch
	}
	if st.Ready == len(missing) {
		return nil, nil
	}
	if errors.Is(st.Err, prefetch.ErrDeadline) || errors.Is(st.Err, prefetch.ErrCancelled) {
		a.job.mu.Lock()
		a.job.mu.stop = cmp.Or(a.job.mu.stop, st.Err)
		a.job.mu.Unlock()
		return nil, st.Err // nothing is lost yet: what came up too late may be in DRAM
	}
	lost = &missing[st.Ready].Piece
	a.lost[*lost] = struct{}{}
	return lost, st.Err
}

// fetchSome makes what loads some pieces, of so many bytes by group, unless nothing more is to be loaded.
func (a *lengthJob) fetchSome(pieces []load, sizes []int64) (*prefetch.Job[chunk], error) {
	j := a.job
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.stop != nil {
		return nil, j.mu.stop
	}
	o := prefetch.Options[chunk]{To: len(pieces), Bytes: func(i int) int64 { return sizes[pieces[i].Group] }}
	o.Lanes, o.Lane = lanesOf(0, o.To, func(i int) bool { return pieces[i].at.Has(tier.Remote) })
	j.mu.fetch = j.newFetch(pieces, o)
	return j.mu.fetch, nil
}

// settle pins what m needs, all of which is held, if the job is to be pinned, makes it
// ready, and ends the job.
func (a *lengthJob) settle(m *store.Plan, err error) {
	j := a.job
	defer close(a.settled)
	a.keepOnly(m)
	var refs []tier.Ref
	var tokens []uint32
	far := make([]tier.Place, m.Needs[0].To-m.Needs[0].From)
	a.eachPiece(m, func(p store.Piece) {
		ch := a.held[p]
		refs, tokens = append(refs, ch.ref), append(tokens, uint32(a.job.prompt.Groups[p.Group].Chunk))
		if p.Group == 0 {
			far[p.Chunk-m.Needs[0].From] = max(far[p.Chunk-m.Needs[0].From], ch.from)
		}
	})
	a.eachChain(m, func(chain *key.Chain, need *store.Need) { j.pinChunks(chain, need.From, need.To) })
	j.mu.Lock()
	if j.mu.ended {
		j.mu.Unlock()
		j.unlease(refs)
		return
	}
	a.tokens = tokens
	if len(refs) > 0 {
		a.needs = needsOf(m, a.job.prompt.named)
	}
	for _, p := range far {
		j.mu.in[p].Chunks++
		j.mu.in[p].Tokens += m.Tokens / uint64(m.Chunks)
	}
	j.mu.refs, j.mu.tokens, j.mu.done, j.mu.err = refs, uint64(m.End-a.job.prompt.Skip), true, err
	j.missed.settled(j)
	j.rejuvenate()
	told := j.mu.told
	j.mu.Unlock()
	a.eachChain(m, func(chain *key.Chain, need *store.Need) { j.prompt.store.Leases.Touch(chain, need.From, need.To) })
	if told { // else tell does
		j.session.push(j)
	}
}

// eachChain calls fn for each chain of each rank of a group, with what m needs of it.
func (a *lengthJob) eachChain(m *store.Plan, fn func(chain *key.Chain, need *store.Need)) {
	for g := range m.Needs {
		for r := range a.job.prompt.Chains[g] {
			fn(&a.job.prompt.Chains[g][r], &m.Needs[g])
		}
	}
}

// eachPiece calls fn for the pieces that m needs: of each group, of each chunk, of each rank.
func (a *lengthJob) eachPiece(m *store.Plan, fn func(p store.Piece)) {
	for g, need := range m.Needs {
		for i := need.From; i < need.To; i++ {
			for r := range a.job.prompt.Chains[g] {
				fn(store.Piece{Group: g, Rank: r, Chunk: i})
			}
		}
	}
}

// load is a piece that is to be brought up.
type load struct {
	store.Piece
	turn int      // the token by which it has its turn
	at   tier.Set // where it is
}

// lacking is the pieces that m needs and the job does not hold, in the order in
// which to load them: those of the full groups in the order of the prompt, and the
// others before the last of these.
func (a *lengthJob) lacking(m *store.Plan) (out []load) {
	a.eachPiece(m, func(p store.Piece) {
		if _, ok := a.held[p]; !ok {
			need := &m.Needs[p.Group]
			out = append(out, load{p, a.turn(m, p), need.At(p.Chunk)})
		}
	})
	byTurn(out)
	return out
}

func byTurn(loads []load) {
	slices.SortStableFunc(loads, func(p, q load) int { return cmp.Compare(p.turn, q.turn) })
}

// turn is the token by which a piece has its turn.
func (a *lengthJob) turn(m *store.Plan, p store.Piece) int {
	if g := a.job.prompt.Groups[p.Group]; g.Kind == index.Full {
		return (p.Chunk + 1) * g.Chunk
	}
	return m.End - 1
}

// holdNeeds leases the pieces of m that are in DRAM and not held.
func (a *lengthJob) holdNeeds(m *store.Plan) {
	for g, need := range m.Needs {
		for r := range a.job.prompt.Chains[g] {
			for from := need.From; from < need.To; {
				to := from
				for to < need.To && !a.holds(g, r, to) && need.At(to) == tier.Of(tier.CPU) {
					to++
				}
				if to == from {
					from++
				} else if from = a.holdRun(g, r, from, to); from < to {
					break // a budget, or it was evicted this moment: loading it says which
				}
			}
		}
	}
}

// holdRun holds chunks from..to as far as it can, and returns how far.
func (a *lengthJob) holdRun(g, r, from, to int) int {
	refs := make([]tier.Ref, to-from)
	n, _ := a.job.prompt.store.Leases.Hold(a.job.session.owner, ledger.Lease, &a.job.prompt.Chains[g][r], from, to, refs)
	for i, ref := range refs[:n] {
		a.held[store.Piece{Group: g, Rank: r, Chunk: from + i}] = chunk{ref, tier.CPU}
	}
	return from + n
}

func (a *lengthJob) holds(g, r, i int) bool {
	_, ok := a.held[store.Piece{Group: g, Rank: r, Chunk: i}]
	return ok
}

// needs reports whether m needs a piece.
func needs(m *store.Plan, p store.Piece) bool {
	need := &m.Needs[p.Group]
	return need.From <= p.Chunk && p.Chunk < need.To
}

// keepOnly releases the pieces that m does not need.
func (a *lengthJob) keepOnly(m *store.Plan) {
	for p, ch := range a.held {
		if !needs(m, p) {
			a.job.unlease([]tier.Ref{ch.ref})
			delete(a.held, p)
		}
	}
}

// A job that may not bring all up in time also loads what some shorter usable lengths
// need, each before the last full chunk of that length: at its deadline it has one of
// these then. They are looked for at shares of the length to be expected, and take a tenth
// of the bytes at most.
var fallbackAt = [...]float64{1, .85, .7, .55, .4, .25, .12}

const (
	fallbackBytes = 10 // one in so many
	inTime        = .8 // of the time that is left: what is expected by then is certain
)

// withFallbacks adds to the loads of m what shorter lengths need. sizes is by group.
func (a *lengthJob) withFallbacks(ctx context.Context, m *store.Plan, loads []load, sizes []int64) []load {
	if a.job.until.IsZero() || a.stopped() != nil {
		return loads
	}
	budget := int64(0)
	planned := make(map[store.Piece]int, len(loads))
	for i, l := range loads {
		planned[l.Piece] = i
		budget += sizes[l.Group]
	}
	budget /= fallbackBytes
	skip, last := a.job.prompt.Skip, m.End
	reach, sure := a.reach(m, loads, sizes)
	if sure {
		return loads
	}
	for _, share := range fallbackAt {
		most := min(skip+int(share*float64(reach-skip)), last-1)
		n, err := a.job.prompt.store.Lookups.Probe(ctx, a.job.prompt.Family, a.job.prompt.search, most, a.lost)
		if err != nil || n.End <= skip {
			break
		}
		last = n.End
		loads, budget = a.cover(&n, loads, planned, sizes, budget)
	}
	byTurn(loads)
	return loads
}

// cover adds what n needs to loads, if the budget has room for it.
func (a *lengthJob) cover(n *store.Plan, loads []load, planned map[store.Piece]int, sizes []int64, budget int64) ([]load, int64) {
	more, cost := a.lacking(n), int64(0)
	for _, l := range more {
		if _, ok := planned[l.Piece]; !ok {
			cost += sizes[l.Group]
		}
	}
	if cost > budget {
		return loads, budget
	}
	for _, l := range more {
		if i, ok := planned[l.Piece]; ok {
			loads[i].turn = min(loads[i].turn, l.turn)
			continue
		}
		planned[l.Piece] = len(loads)
		loads = append(loads, l)
	}
	return loads, budget - cost
}

// reach is up to which token the loads of m should come up before the deadline, by
// the speed of the tiers. It is sure if that is all, with time to spare.
func (a *lengthJob) reach(m *store.Plan, loads []load, sizes []int64) (tokens int, sure bool) {
	left, t := time.Until(a.job.until).Seconds(), prefetch.NewTempo(a.job.links())
	tokens = a.job.prompt.Skip
	for _, l := range loads {
		if !t.Load(int(l.at.Nearest()), sizes[l.Group]) { // nothing has come from there yet
			return m.End, false
		}
		if t.Seconds > left {
			return tokens, false
		}
		tokens = l.turn
	}
	return m.End, t.Seconds <= inTime*left && !a.job.best
}

// sizes is how large the chunks of each group are: as the first that m needs, or as the most
// that they may be where that is not known; nothing of a group of which m needs none.
func (a *lengthJob) sizes(m *store.Plan) []int64 {
	sizes := make([]int64, len(m.Needs))
	for g, need := range m.Needs {
		unknown := int64(arena.MaxPayload)
		if need.From == need.To {
			unknown = 0
		}
		sizes[g] = a.job.prompt.sizeAt(&a.job.prompt.Chains[g][0], need.From, unknown)
	}
	return sizes
}
