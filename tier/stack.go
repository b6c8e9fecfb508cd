package tier

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/flight"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/radix"
	"github.com/kvstored/kvstored/key"
)

// Options of a Stack.
type Options struct {
	Hot      Hot
	Disk     Tier // nil: no such tier
	Remote   Tier // nil: no such tier
	Write    WriteOptions
	Quotas   []Quota // as the tiers were given them
	Settings         // the first ones; see Stack.Set
	// Loads bounds what each tier below DRAM is asked for at a time; what is
	// beyond takes turns. No loads means the default of usualLoads.
	Loads [Places]fair.Limit
	Log   zerolog.Logger
}

// usualLoads keeps a local disk busy, two pieces of 1 MiB at a time, and makes
// whoever comes next wait for 32 MiB at most: some 15 ms.
var usualLoads = fair.Limit{Loads: 32, Bytes: 32 << 20}

// usualBytes is what a chunk is taken to have before a tier has told of one.
const usualBytes = 1 << 20

// Stack is the tiers as one store, nearest first, under one index of every
// known chunk. It is safe for concurrent use. The tiers stay their owner's
// to close.
//
// Each tier is the truth about what it holds; the index follows. Whoever
// changed what a tier holds calls settle, which asks the tier again under
// the index's lock, so that the last one to settle always leaves the truth
// behind, in whatever order changes and settles interleave.
type Stack struct {
	hot    Hot
	room   int64        // of DRAM, in bytes
	tiers  [Places]Tier // nil where there is none
	quotas struct {
		sync.Mutex // held while tiers are told of quotas, before any other lock
		list       []Quota
	}
	writers   []*writer // one per tier below DRAM
	flight    flight.Group[key.Key, loaded]
	coming    coming
	departing departing
	untold    untold
	local     locals
	turns     [Places]*fair.Queue  // who loads next; nil where there is no tier
	usual     [Places]atomic.Int64 // bytes of the last chunk that came up
	speed     [Places]speedometer
	hurry     hurry
	planners  []Planner     // the bounded tiers
	uppers    [Places]Upper // of them, those that stand on a tier below
	takesAll  bool          // there is a tier without bounds
	lesson    chan struct{} // capacity 1: a policy may have something to learn
	log       zerolog.Logger

	mu struct {
		sync.Mutex
		tree *radix.Tree
	}
	shrink     chan struct{} // capacity 1: DRAM may be above its high watermark
	leaving    atomic.Int64  // bytes of DRAM's victims that are still to be written
	recovering atomic.Bool   // the disk tier is being scanned for the first time
	unscanned  atomic.Bool   // no scan of it has come to its end yet
	verify     sampler
	scrubs     scrubs
	count      counters
}

// NewStack makes a stack over its tiers.
func NewStack(o Options) *Stack {
	s := &Stack{hot: o.Hot, room: o.Hot.Stats().CapacityBytes, log: o.Log, shrink: make(chan struct{}, 1)}
	s.quotas.list = o.Quotas
	s.scrubs.changed = make(chan struct{}, 1)
	s.tiers = [Places]Tier{CPU: o.Hot, Disk: o.Disk, Remote: o.Remote}
	s.mu.tree = radix.New()
	s.lesson, s.takesAll = make(chan struct{}, 1), o.Remote != nil
	s.flight.Clone, s.flight.Discard = s.cloneLoaded, s.discardLoaded
	for _, t := range s.tiers {
		if p, ok := under[Planner](t); ok {
			s.planners = append(s.planners, p)
		}
	}
	for p := Disk; p < Places; p++ {
		if s.tiers[p] != nil {
			s.turns[p] = fair.New(cmp.Or(o.Loads[p], usualLoads))
			s.usual[p].Store(usualBytes)
			s.writers = append(s.writers, newWriter(s, p, o.Write))
		}
	}
	s.Set(o.Settings)
	s.stand()
	if len(s.writers) > 1 { // what the far one holds takes room too, and its ancestors with it
		s.writers[0].maxBehind /= 2
	}
	if _, ok := o.Disk.(Recoverer); ok {
		s.recovering.Store(true)
		s.unscanned.Store(true)
	}
	return s
}

// Run recovers what the tiers hold, writes behind and keeps watermarks until
// ctx ends.
func (s *Stack) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.recover(ctx) })
	g.Go(func() error { return s.keepWatermark(ctx) })
	g.Go(func() error { return s.keepLearning(ctx) })
	if s.tiers[Disk] != nil {
		g.Go(func() error { return s.keepScrubbing(ctx) })
	}
	for _, w := range s.writers {
		g.Go(func() error { return w.run(ctx) })
	}
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Wait returns when no load is under way any more. Those that nobody waits
// for end soon. Call it when nobody calls Load any more and before the tiers
// are closed.
func (s *Stack) Wait() { s.flight.Wait() }

// NewOwner registers a client.
func (s *Stack) NewOwner() ledger.Owner { return s.hot.Ledger().NewOwner() }

// CloseOwner forgets a client that holds nothing any more.
func (s *Stack) CloseOwner(o ledger.Owner) { s.hot.Ledger().CloseOwner(o) }

// Charge makes o pay for bytes that are no entries any more but cannot be
// used yet; Uncharge ends that.
func (s *Stack) Charge(o ledger.Owner, c ledger.Class, n int64) error {
	return s.hot.Ledger().Charge(o, c, n)
}

// Uncharge ends a Charge.
func (s *Stack) Uncharge(o ledger.Owner, c ledger.Class, n int64) {
	s.hot.Ledger().Uncharge(o, c, n)
}

// keepWatermark keeps eviction off the path of a put: it runs ahead of it.
func (s *Stack) keepWatermark(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.shrink:
			s.hot.Shrink(ctx, s.leaving.Load(), s.drop)
		}
	}
}

// filled wakes keepWatermark if there is something for it to do: waking a
// goroutine costs more than most commits.
func (s *Stack) filled() {
	if !s.hot.Crowded(s.leaving.Load()) {
		return
	}
	select {
	case s.shrink <- struct{}{}:
	default:
	}
}

// drop takes over what had to leave DRAM: it goes down first if no tier below
// has it, and true says that its memory stays in use until it has.
func (s *Stack) drop(v Victim) bool {
	taken := v.Dirty && s.handDown(v)
	if taken {
		s.settleRecords(CPU, []Record{v.Record}) // the index may have been told that it is gone
	} else {
		s.settle(CPU, v.Key)
		s.refund(v)
		v.Block.Release()
	}
	return taken
}
