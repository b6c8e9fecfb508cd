package store

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/tier"
)

// Options of a Store.
type Options struct {
	Hot        tier.Hot
	Below      []Below           // the tiers below DRAM, nearest first
	When       writeback.When    // chunks are written below
	Workers    int               // writes at a time per tier; 0 = as usual
	Quotas     []Quota           // the tiers were given those of Bounded
	Ages       *stale.Book       // the same that the tiers have; nil: a new one
	Distrusted *stale.Distrusted // spaces of which everything is a miss; nil: a new one
	Settings                     // the first ones; see Store.Set
	Events     *index.Log        // is told what the tiers come to have and lose; nil: off
	// Loaded is told how long a chunk that a client waited for took from a tier below to
	// its lease in DRAM. Nil: not wanted. It must not block.
	Loaded func(from tier.Place, took time.Duration)
	// RoomWait is how long a promotion waits for memory that others hold; 0 = 10 s.
	RoomWait time.Duration
	Log      zerolog.Logger
}

// Store is the tiers as one store, nearest first, under one index of every known chunk. It is safe
// for concurrent use. The tiers stay their owner's to close.
//
// Each of its parts has one concern:
type Store struct {
	Lookups  *Lookups           // how much of a prompt there is
	Leases   *Leases            // what clients hold in DRAM
	Loader   *Loader            // from a tier below to DRAM
	Filler   *Filler            // from a client to DRAM
	Writers  *writeback.Writers // from DRAM to the tiers below, behind
	Remover  *Remover           // out of every tier
	Planning *Planning          // what the policies are told
	Recovery *Recovery          // what an earlier process has left
	Operator *Operator          // questions and changes by hand; chunks that are too old

	levels     *levels     // the tiers, nearest first
	index      *tierIndex  // which tiers have a chunk
	promotions *promotions // chunks in flight to DRAM, and deletions meanwhile
}

// New makes a store over its tiers.
func New(o Options) *Store {
	levels, promotions := newLevels(o.Hot, o.Below), new(promotions)
	o.Ages, o.Distrusted = cmp.Or(o.Ages, stale.New()), cmp.Or(o.Distrusted, new(stale.Distrusted))
	chunks := ledger.FreeEntries(o.Hot.Ledger())
	absences := &absences{evictLog: explain.NewEvictLog(min(explain.DefaultEntries, chunks)), levels: levels}
	index := newIndex(&o, levels, absences, chunks)
	loader := &Loader{
		levels: levels, index: index, promotions: promotions, ages: o.Ages, distrusted: o.Distrusted,
		rivals: &absences.rivals, loaded: o.Loaded, roomWait: cmp.Or(o.RoomWait, defaultRoomWait),
	}
	loader.flight.Joined, loader.flight.Clone, loader.flight.Discard = base.Queued, (*promoted).share, loader.release
	writers := writeback.New(writeback.Options{
		Hot: o.Hot, Tiers: levels.targets(), Index: index, When: o.When, Workers: o.Workers,
		Ages: o.Ages, Distrusted: o.Distrusted, EvictLog: absences.evictLog, Rivals: &absences.rivals,
		Guard: promotions.readmit, Fetch: loader.fetch, Log: o.Log,
	})
	for i, w := range writers.All() {
		levels.below[i].writer = w
	}
	index.writers, loader.writers = writers, writers
	hot := explain.NewHotPrefixes()
	lookups := &Lookups{
		levels: levels, index: index, promotions: promotions, writers: writers, ages: o.Ages,
		distrusted: o.Distrusted, absences: absences, log: o.Log,
	}
	leases := &Leases{
		levels: levels, index: index, lookups: lookups, writers: writers, ages: o.Ages,
		distrusted: o.Distrusted, hotPrefixes: hot, log: o.Log,
	}
	loader.leases = leases
	remover := &Remover{levels: levels, index: index, promotions: promotions, writers: writers, log: o.Log}
	planning := newPlanning(levels, writers, o.Distrusted)
	recovery := &Recovery{levels: levels, index: index, writers: writers, log: o.Log}
	s := &Store{
		Writers: writers, levels: levels, index: index, promotions: promotions,
		Lookups: lookups, Leases: leases, Loader: loader, Remover: remover, Planning: planning, Recovery: recovery,
		Filler: &Filler{
			levels: levels, index: index, lookups: lookups, planning: planning, remover: remover,
			writers: writers, ages: o.Ages, distrusted: o.Distrusted, absences: absences, hotPrefixes: hot, log: o.Log,
		},
		Operator: &Operator{
			levels: levels, index: index, promotions: promotions, leases: leases, recovery: recovery, writers: writers,
			ages: newAges(o.Ages, remover), distrusted: o.Distrusted, hotPrefixes: hot, depths: &planning.depths, log: o.Log,
		},
	}
	s.Operator.quotas.list = o.Quotas
	s.Operator.scrubs.changed = make(chan struct{}, 1)
	s.Operator.Set(o.Settings)
	return s
}

// Run recovers what the tiers hold, writes behind and keeps watermarks until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.Writers.Run(ctx) })
	g.Go(func() error { return s.Planning.keepTraining(ctx) })
	g.Go(func() error { return s.Operator.ages.run(ctx) })
	for _, l := range s.levels.below {
		if l.Recoverer != nil {
			g.Go(func() error { return s.Recovery.recover(ctx, l) })
		}
		if l.Scrubber != nil {
			g.Go(func() error { return s.Operator.keepScrubbing(ctx) })
		}
	}
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
