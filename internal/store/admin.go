package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Operator is what people ask and change by hand, and what runs for them in the
// background.
type Operator struct {
	levels      *levels
	index       *tierIndex
	promotions  *promotions
	leases      *Leases
	recovery    *Recovery
	writers     *writeback.Writers
	ages        *ages
	distrusted  *stale.Distrusted
	hotPrefixes *explain.HotPrefixes
	depths      *depths // planning's
	log         zerolog.Logger
	quotas      struct {
		sync.Mutex // held while tiers are told of quotas, before any other lock
		list       []Quota
	}
	scrubs scrubs
}

// PolicyOf is the policy of a tier; false where there is none.
func (s *Operator) PolicyOf(p tier.Place) (name string, ok bool) {
	l := s.levels.at[p]
	if l == nil || l.Bounded == nil {
		return "", false
	}
	return l.Bounded.Ledger().PolicyName(), true
}

// SetPolicy replaces the policy of a tier.
func (s *Operator) SetPolicy(p tier.Place, name string) error {
	l := s.levels.at[p]
	switch {
	case l == nil:
		return fmt.Errorf("policy: %w", notThere("there is no "+p.String()+" tier"))
	case l.Tunable == nil:
		return fmt.Errorf("policy: %w", notThere("the "+p.String()+" tier evicts nothing"))
	}
	if err := l.Tunable.SetPolicy(name); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	s.log.Info().Stringer("tier", p).Str("policy", name).Msg("policy replaced")
	return nil
}

// notThere is an ErrNotFound that names the missing chunk.
type notThere string

func (n notThere) Error() string { return string(n) }
func (notThere) Unwrap() error   { return tier.ErrNotFound }

// Trouble says of each tier that is off, or takes no writes, why.
func (s *Operator) Trouble() (why [tier.Places]error) {
	for _, l := range s.levels.below {
		if l.Health != nil {
			switch err := l.Health.Trouble(); {
			case err == nil:
			case l.Health.Off():
				why[l.Place] = fmt.Errorf("the %s tier is off: %w", l.Place, err)
			default:
				why[l.Place] = fmt.Errorf("the %s tier: %w", l.Place, err)
			}
		}
	}
	return why
}

// Settings are the options that can change while a Store runs.
type Settings struct {
	// VerifyHits is how many leased chunks there are to one whose checksum
	// is computed again before it is leased; 0 = never.
	VerifyHits int
	// ScrubBytesPerSecond is how fast the disk is read in the background to
	// find payloads that have gone bad; 0 = not at all.
	ScrubBytesPerSecond int64
	// DiskBytesPerDay bounds the bytes written to the disk, against wear, with
	// bursts of up to an hour's share; 0 = unlimited.
	DiskBytesPerDay int64
	// UnsafeAge bounds how long Auto leaves a chunk in DRAM alone, give or take
	// the seconds between two looks; 0 = not at all.
	UnsafeAge time.Duration
}

// Set replaces the settings. A pass of the scrub at another rate than the new
// one ends, and the next one begins anew. It is safe for concurrent use.
func (s *Operator) Set(to Settings) {
	s.leases.verify.every.Store(uint64(to.VerifyHits))
	s.scrubs.setRate(to.ScrubBytesPerSecond)
	for _, l := range s.levels.below {
		l.writer.SetUnsafeAge(to.UnsafeAge)
	}
	if l := s.levels.at[tier.Disk]; l != nil {
		l.writer.SetBudget(to.DiskBytesPerDay)
	}
}

// scrubPause is the least time between two passes of the background scrub.
const scrubPause = time.Minute

// Scrub makes one pass over the disk tier, in addition to those in the background.
func (s *Operator) Scrub(ctx context.Context, bytesPerSecond int64) (tier.Scrubbed, error) {
	l := s.levels.first(func(l *level) bool { return l.Scrubber != nil })
	switch {
	case l == nil:
		return tier.Scrubbed{}, fmt.Errorf("scrub: %w", notThere("there is no disk tier; disk.capacity is 0"))
	case l.Off():
		return tier.Scrubbed{}, fmt.Errorf("scrub: %w", tier.ErrOff)
	}
	return l.Scrubber.Scrub(ctx, bytesPerSecond, func(k key.Key) { s.index.Sync(l.Place, explain.Corrupt, k) })
}

// scrubs is how fast the background scrub is to read.
type scrubs struct {
	rate    atomic.Int64  // bytes per second; 0 = it rests
	changed chan struct{} // capacity 1
}

func (s *scrubs) setRate(bytesPerSecond int64) {
	if s.rate.Swap(bytesPerSecond) != bytesPerSecond {
		base.Poke(s.changed)
	}
}

// keepScrubbing makes one pass after the other, at the configured rate.
func (s *Operator) keepScrubbing(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.scrubs.changed: // and a pause
			continue
		case <-time.After(scrubPause):
		}
		if rate := s.scrubs.rate.Load(); rate > 0 && s.levels.scanning() == 0 {
			s.scrubOnce(ctx, rate)
		}
	}
}

// scrubOnce makes one pass, unless the rate changes.
func (s *Operator) scrubOnce(ctx context.Context, rate int64) {
	pass, end := context.WithCancel(ctx)
	defer end()
	go func() {
		select {
		case <-s.scrubs.changed:
			end()
		case <-pass.Done():
		}
	}()
	sum, err := s.Scrub(pass, rate)
	switch {
	case pass.Err() != nil:
	case errors.Is(err, tier.ErrOff):
	case err != nil:
		s.log.Warn().Err(err).Msg("scrub did not come to its end")
	case sum.Wrong > 0 || sum.Failed > 0:
		s.log.Warn().Uint64("chunks", sum.Chunks).Uint64("wrong", sum.Wrong).Uint64("unreadable", sum.Failed).Msg("scrub found damage")
	}
}
