package server

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/internal/index/hybrid"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/prefetch"
	"github.com/kvstored/kvstored/tier"
)

// assembly is the part of a job that is about a hybrid model. It brings up what
// one length needs, and hands the job all of it at once: until then nothing is
// ready. Where a piece is lost, or the time is up, it goes for the longest usable
// length that is left, which is shorter; what that one does not need is released.
// So the refs of a job are always those of one length.
type assembly struct {
	job    *job
	family *stack.Family
	groups wire.Groups       // as the request named them
	first  stack.FamilyMatch // what the job is to bring up
	held   map[stack.Piece]chunk
	lost   map[stack.Piece]struct{}
	// lateFor is the kind of the group of the first piece that was not up at the deadline.
	lateFor *hybrid.Kind
	done    chan struct{} // closed when the job is

	mu struct {
		sync.Mutex
		fetch *prefetch.Job[chunk] // of the length that is tried now
		stop  error                // prefetch.ErrDeadline or ErrCancelled: no more is loaded
	}

	// What the job has, set once before done is closed, under the job's mutex.
	needs  wire.Needs
	tokens []uint32 // of each ref
}

func newAssembly(j *job, p *prompt) *assembly {
	return &assembly{
		job: j, family: p.family, groups: slices.Clone(p.named), first: p.usable,
		held: make(map[stack.Piece]chunk), lost: make(map[stack.Piece]struct{}), done: make(chan struct{}),
	}
}

// begin holds the needed pieces that are in DRAM. If those are all, the job is done.
func (a *assembly) begin() {
	if a.hold(&a.first); len(a.missing(&a.first)) == 0 {
		a.settle(&a.first, nil)
	}
}

// run brings up the rest, unless begin has ended the job.
func (a *assembly) run(ctx context.Context) {
	select {
	case <-a.done:
		return
	default:
	}
	m, search := a.first, a.job.search
	var cause error
	for {
		err := a.bring(ctx, &m)
		if err == nil {
			break
		}
		cause = cmp.Or(cause, err)
		if left := a.missing(&m); errors.Is(err, prefetch.ErrDeadline) && a.lateFor == nil && len(left) > 0 {
			a.lateFor = &a.family.Groups[left[0].Group].Kind
		}
		if a.over() != nil { // nothing more is loaded
			search &= tier.Of(tier.CPU)
		}
		most := m.Tokens
		var merr error
		if m, merr = a.job.stack.MatchFamily(ctx, a.family, search, most, a.lost); merr != nil || errors.Is(a.over(), prefetch.ErrCancelled) {
			m = stack.FamilyMatch{Tokens: a.family.Skip, Needs: make([]stack.Need, len(a.family.Groups))}
		}
		a.release(a.unneeded(&m))
		a.hold(&m)
	}
	if m.Tokens == a.first.Tokens {
		cause = nil
	}
	a.late(&m)
	a.settle(&m, cause)
}

// over is why no more is loaded; nil if some may be.
func (a *assembly) over() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.stop
}

// bring loads the missing pieces of m. The error says why a piece, which is
// lost from then on, is not there. One that only shorter lengths need ends nothing.
func (a *assembly) bring(ctx context.Context, m *stack.FamilyMatch) error {
	for {
		lost, err := a.bringSome(ctx, m)
		if err == nil || lost == nil || needs(m, *lost) {
			return err
		}
	}
}

// bringSome loads the missing pieces of m up to one that is lost, if there is such a one.
func (a *assembly) bringSome(ctx context.Context, m *stack.FamilyMatch) (lost *stack.Piece, err error) {
	missing := a.missing(m)
	if len(missing) == 0 {
		return nil, nil
	}
	sizes := a.sizes(m)
	missing = a.insure(ctx, m, missing, sizes)
	fetch, err := a.fetch(missing, sizes)
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
		a.mu.Lock()
		a.mu.stop = cmp.Or(a.mu.stop, st.Err)
		a.mu.Unlock()
		return nil, st.Err // nothing is lost yet: what came up too late may be in DRAM
	}
	lost = &missing[st.Ready].Piece
	a.lost[*lost] = struct{}{}
	return lost, st.Err
}

// fetch makes the job that loads some pieces, of so many bytes by group, unless nothing more is to be loaded.
func (a *assembly) fetch(pieces []load, sizes []int64) (*prefetch.Job[chunk], error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.stop != nil {
		return nil, a.mu.stop
	}
	o := prefetch.Options[chunk]{To: len(pieces), Bytes: func(i int) int64 { return sizes[pieces[i].Group] }}
	far := func(i int) bool { return pieces[i].at.Has(tier.Remote) }
	for i := range pieces {
		if far(i) != far(0) {
			o.Lanes, o.Lane = lanesOf(far)
			break
		}
	}
	a.mu.fetch = a.job.newFetch(pieces, o)
	return a.mu.fetch, nil
}

// settle pins what m needs, all of which is held, if the job is to be pinned, hands it
// to the job, and ends it.
func (a *assembly) settle(m *stack.FamilyMatch, err error) {
	j := a.job
	defer close(a.done)
	a.release(a.unneeded(m))
	var refs []tier.Ref
	var tokens []uint32
	far := make([]tier.Place, m.Needs[0].To-m.Needs[0].From)
	a.each(m, func(p stack.Piece) {
		ch := a.held[p]
		refs, tokens = append(refs, ch.ref), append(tokens, uint32(a.family.Groups[p.Group].Chunk))
		if p.Group == 0 {
			far[p.Chunk-m.Needs[0].From] = max(far[p.Chunk-m.Needs[0].From], ch.from)
		}
	})
	a.chains(m, func(chain *key.Chain, need *stack.Need) { j.pinChunks(chain, need.From, need.To) })
	j.mu.Lock()
	if j.mu.ended {
		j.mu.Unlock()
		j.unlease(refs)
		return
	}
	a.tokens = tokens
	if len(refs) > 0 {
		a.needs = needsOf(m, a.groups)
	}
	for _, p := range far {
		j.mu.in[p].Chunks++
		j.mu.in[p].Tokens += uint64(tokensEach(a.family, m))
	}
	j.mu.refs, j.mu.tokens, j.mu.done, j.mu.err = refs, uint64(m.Tokens-a.family.Skip), true, err
	j.short.settled(j)
	j.rejuvenate()
	told := j.mu.told
	j.mu.Unlock()
	a.chains(m, func(chain *key.Chain, need *stack.Need) { j.stack.Touch(chain, need.From, need.To) })
	if told { // else tell does
		j.session.push(j)
	}
}

// chains calls fn for each chain of each rank of a group, with what m needs of it.
func (a *assembly) chains(m *stack.FamilyMatch, fn func(chain *key.Chain, need *stack.Need)) {
	for g := range m.Needs {
		for r := range a.family.Chains[g] {
			fn(&a.family.Chains[g][r], &m.Needs[g])
		}
	}
}

// Stop ends the loading now, as the deadline would; Cancel for good.
func (a *assembly) Stop() { a.end(prefetch.ErrDeadline, (*prefetch.Job[chunk]).Stop) }

// Cancel ends the loads under way, too.
func (a *assembly) Cancel() { a.end(prefetch.ErrCancelled, (*prefetch.Job[chunk]).Cancel) }

func (a *assembly) end(why error, how func(*prefetch.Job[chunk])) {
	a.mu.Lock()
	if a.mu.stop == nil || errors.Is(why, prefetch.ErrCancelled) {
		a.mu.stop = why
	}
	fetch := a.mu.fetch
	a.mu.Unlock()
	if fetch != nil {
		how(fetch)
	}
}

// wait returns when the job is done, or ctx.
func (a *assembly) wait(ctx context.Context) {
	select {
	case <-a.done:
	case <-ctx.Done():
	}
}

// each calls fn for the pieces that m needs: of each group, of each chunk, of each rank.
func (a *assembly) each(m *stack.FamilyMatch, fn func(p stack.Piece)) {
	for g, need := range m.Needs {
		for i := need.From; i < need.To; i++ {
			for r := range a.family.Chains[g] {
				fn(stack.Piece{Group: g, Rank: r, Chunk: i})
			}
		}
	}
}

// load is a piece that is to be brought up.
type load struct {
	stack.Piece
	turn int      // the token by which it has its turn
	at   tier.Set // where it is
}

// missing is the pieces that m needs and the job does not hold, in the order in
// which to load them: those of the full groups in the order of the prompt, and the
// others before the last of these.
func (a *assembly) missing(m *stack.FamilyMatch) (out []load) {
	a.each(m, func(p stack.Piece) {
		if _, ok := a.held[p]; !ok {
			need := &m.Needs[p.Group]
			out = append(out, load{p, a.turn(m, p), tier.Set(need.At[p.Chunk-need.From])})
		}
	})
	byTurn(out)
	return out
}

func byTurn(loads []load) {
	slices.SortStableFunc(loads, func(p, q load) int { return cmp.Compare(p.turn, q.turn) })
}

// turn is the token by which a piece has its turn.
func (a *assembly) turn(m *stack.FamilyMatch, p stack.Piece) int {
	if g := a.family.Groups[p.Group]; g.Kind == hybrid.Full {
		return (p.Chunk + 1) * g.Chunk
	}
	return m.Tokens - 1
}

// hold leases the pieces of m that are in DRAM and not held.
func (a *assembly) hold(m *stack.FamilyMatch) {
	for g, need := range m.Needs {
		for r := range a.family.Chains[g] {
			for from := need.From; from < need.To; {
				to := from
				for to < need.To && !a.has(g, r, to) && tier.Set(need.At[to-need.From]) == tier.Of(tier.CPU) {
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
func (a *assembly) holdRun(g, r, from, to int) int {
	j, refs := a.job, make([]tier.Ref, to-from)
	n, _ := j.stack.Hold(j.session.owner, ledger.Lease, &a.family.Chains[g][r], from, to, refs)
	for i, ref := range refs[:n] {
		a.held[stack.Piece{Group: g, Rank: r, Chunk: from + i}] = chunk{ref, tier.CPU}
	}
	return from + n
}

func (a *assembly) has(g, r, i int) bool {
	_, ok := a.held[stack.Piece{Group: g, Rank: r, Chunk: i}]
	return ok
}

// needs reports whether m needs a piece.
func needs(m *stack.FamilyMatch, p stack.Piece) bool {
	need := &m.Needs[p.Group]
	return need.From <= p.Chunk && p.Chunk < need.To
}

// unneeded is the pieces that are held and that m does not need.
func (a *assembly) unneeded(m *stack.FamilyMatch) (out []stack.Piece) {
	for p := range a.held {
		if !needs(m, p) {
			out = append(out, p)
		}
	}
	return out
}

func (a *assembly) release(ps []stack.Piece) {
	for _, p := range ps {
		a.job.unlease([]tier.Ref{a.held[p].ref})
		delete(a.held, p)
	}
}
