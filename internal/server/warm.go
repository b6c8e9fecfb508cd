package server

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/prefetch"
	"github.com/kvstored/kvstored/tier"
)

// maxWarms is how many warms of a connection may be under way.
const maxWarms = 64

// warmShare: a warm brings up at most one part in so many of DRAM. More of one
// prompt would evict its own start.
const warmShare = 2

// warming brings a prompt up as idle work, and leases nothing of it.
type warming struct {
	prompt
	by    store.Requester
	hot   int // chunks that were in DRAM
	fetch *prefetch.Job[tier.Place]
	bytes int64        // that may come up
	size  atomic.Int64 // of the last piece that came up; before, of what is known of one, or 0
	count *counters
}

// newWarming makes ready to promote the chunks of a plain prompt that were found and those
// that the remote scan finds beyond them, about as many as fit into its share of DRAM.
// places are of [prefetch.Options].
func (s *Server) newWarming(p prompt, by ledger.Owner, places chan struct{}) *warming {
	w := &warming{prompt: p, by: store.Requester{Owner: by, Job: s.ids.Add(1)}, hot: p.plan.Hot, count: &s.count}
	w.bytes = s.o.Arena.Stats().CapacityBytes / warmShare
	most := w.more()
	from, to := w.ranks()*w.hot, w.ranks()*(most-w.skip())
	lanes, lane := lanesOf(from, to, w.far)
	guess := w.sizeAt(w.chain(), w.skip()+w.hot, arena.MaxPayload)
	if guess < arena.MaxPayload { // it is known; many loads may begin before the first has ended
		w.size.Store(guess)
	}
	w.fetch = prefetch.New(prefetch.Options[tier.Place]{
		Lanes: lanes, Lane: lane, From: from, To: to,
		Window: windowOf(s), ChunkBytes: guess, Places: places, Discard: func(tier.Place) {},
	}, w)
	return w
}

func (w *warming) run(ctx context.Context) {
	defer w.findRest(ctx)()
	w.fetch.Run(ctx)
}

// Load implements prefetch.Source for a piece, numbered as a job's are.
func (w *warming) Load(ctx context.Context, i int) (tier.Place, int64, error) {
	rank, at := i%w.ranks(), w.skip()+i/w.ranks()
	if err := w.exists(ctx, rank, at); err != nil {
		return 0, 0, err
	}
	// By its place, so that the bound ends the prefix: pieces start in any order.
	if int64(i-w.ranks()*w.hot)*w.size.Load() >= w.bytes {
		return 0, 0, fmt.Errorf("warm: it is more than may come up unasked: %w", tier.ErrNoSpace)
	}
	n, from, err := w.store.Loader.Warm(ctx, w.by, &w.Chains[0][rank], at, w.search)
	if n > 0 {
		w.size.Store(n)
		w.count.warmed(n)
	}
	return from, n, err
}

// state is how far it is, as of a job that holds nothing.
func (w *warming) state() wire.JobState {
	st := w.fetch.State()
	s := wire.JobState{Code: wire.CodeRunning}
	if st.Done {
		s.Code, s.FailedTier = endOf(cmp.Or(st.Err, w.unsearched))
	}
	came := w.fetch.Ready(0, nil)
	count := func(chunk int, p tier.Place) {
		tokens := uint64(w.chain().Tokens[w.skip()+chunk])
		for _, n := range []*wire.Count{&s.Ready, &s.Tiers[p]} {
			n.Chunks++
			n.Tokens += tokens
		}
	}
	for i := range w.hot {
		count(i, tier.CPU)
	}
	for i := range len(came) / w.ranks() {
		far := tier.CPU
		for _, p := range came[i*w.ranks() : (i+1)*w.ranks()] {
			far = max(far, p)
		}
		count(w.hot+i, far)
	}
	return s
}

func handleWarm(c *reader, h wire.Header, req wire.WarmRequest) (wire.Message, error) {
	chains, err := named(c, req.LookupID, &req.Chain)
	if err != nil {
		return nil, err
	}
	p := c.server.plainPrompt(chains, searchSet(req.Search))
	if err := c.spent.Add(jobBytes + liveChunkBytes*int64(p.pieces())); err != nil {
		return nil, err
	}
	if err := p.find(c.session.ctx); err != nil {
		return nil, err
	}
	if c.session.warms.Add(1) > maxWarms {
		c.session.warms.Add(-1)
		return nil, refuse(wire.CodeOverBudget, "this connection has %d warms under way; wait for some", maxWarms)
	}
	w := c.server.newWarming(p, c.session.owner, c.session.tenant.loads)
	c.background(func(ctx context.Context) {
		defer c.session.warms.Add(-1)
		w.run(ctx)
	})
	answer := func() *wire.WarmReply { return &wire.WarmReply{Match: matchOf(&p.plan.Match), State: w.state()} }
	if req.Deadline.Or(0) == 0 {
		return answer(), nil
	}
	return c.asyncReply(h, func(ctx context.Context) (wire.Message, error) {
		limited, cancel := within(ctx, req.Deadline)
		defer cancel()
		w.fetch.Wait(limited, w.ranks()*w.chain().Len()+1) // until it is done
		return answer(), ctx.Err()
	})
}
