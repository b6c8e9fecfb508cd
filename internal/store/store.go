package store

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/internal/events"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/tier"
)

// Options of a Store.
type Options struct {
	Hot        tier.Hot
	Below      []Below // the tiers below DRAM, nearest first
	Write      WriteOptions
	Quotas     []Quota           // the tiers were given those of Bounded
	Ages       *stale.Book       // the same that the tiers have; nil: a new one
	Distrusted *stale.Distrusted // spaces of which everything is a miss; nil: a new one
	Settings                     // the first ones; see Store.Set
	Events     *events.Log       // is told what the tiers come to have and lose; nil: off
	// Loaded is told how long a chunk that a client waited for took from a tier below to
	// its lease in DRAM. Nil: not wanted. It must not block.
	Loaded func(from tier.Place, took time.Duration)
	// RoomWait is how long a promotion waits for memory that others hold; 0 = 10 s.
	RoomWait time.Duration
	Log      zerolog.Logger
}

// Store is the tiers as one store, nearest first, under one index of every
// known chunk. It is safe for concurrent use. The tiers stay their owner's
// to close.
//
// It is the sum of its parts, each of which has one concern and shares the rest
// with the others by way of dram:
//
//	lookups   how much of a prompt there is          Match, MatchAll, ScanRemote
//	leases    what clients hold in DRAM               Hold, Release, Touch
//	loader    from a tier below to DRAM               Load, Warm
//	filler    from a client to DRAM                   Reserve, Commit, Replace
//	writer    from DRAM to one tier below, behind     one for each level
//	flusher   until all is written                    Flush, FlushLast
//	remover   out of every tier                       Delete, Clear, Purge
//	planning  what the policies are told              Observe, Admit, Passed
//	recovery  what an earlier process has left        Ready
//	operator  questions and changes by hand           SetPolicy, SetQuotas, Scrub
//	ages      out of every tier, once they are over   the operator's
type Store struct {
	*dram
	*leases
	*loader
	*planning
	*remover
	*filler
	*flusher
	*recovery
	*operator
	lookups
}

// New makes a store over its tiers.
func New(o Options) *Store {
	d := newDRAM(newLevels(o.Hot, o.Below), o.Log)
	if d.ages = o.Ages; d.ages == nil {
		d.ages = stale.New()
	}
	d.distrusted = cmp.Or(o.Distrusted, new(stale.Distrusted))
	d.index.journal = newJournal(&o, d)
	s := &Store{dram: d, lookups: lookups{d}, leases: &leases{dram: d}, remover: &remover{d}}
	s.loader, s.planning = newLoader(d, s.leases, &o), newPlanning(d)
	s.filler = &filler{lookups: s.lookups, planning: s.planning, remover: s.remover}
	s.flusher, s.recovery = &flusher{d}, &recovery{d}
	s.operator = &operator{dram: d, leases: s.leases, ages: newAges(d.ages, s.remover), depths: &s.planning.depths}
	s.operator.quotas.list = o.Quotas
	s.operator.scrubs.changed = make(chan struct{}, 1)
	for _, l := range d.levels.below {
		l.writer = newWriter(s.loader, l, o.Write)
	}
	s.Set(o.Settings)
	return s
}

// Run recovers what the tiers hold, writes behind and keeps watermarks until
// ctx ends.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.keepWatermark(ctx) })
	g.Go(func() error { return s.keepTraining(ctx) })
	g.Go(func() error { return s.operator.ages.run(ctx) })
	for _, l := range s.levels.below {
		g.Go(func() error { return l.writer.run(ctx) })
		if l.Recoverer != nil {
			g.Go(func() error { return s.recover(ctx, l) })
		}
		if l.Scrubber != nil {
			g.Go(func() error { return s.keepScrubbing(ctx) })
		}
	}
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
