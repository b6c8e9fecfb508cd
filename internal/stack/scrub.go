package stack

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/departed"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// scrubPause is the least time between two passes of the background scrub.
const scrubPause = time.Minute

// Scrub makes one pass over the disk tier, in addition to those in the background.
func (s *operator) Scrub(ctx context.Context, bytesPerSecond int64) (tier.Scrubbed, error) {
	l := s.levels.first(func(l *level) bool { return l.Scrubber != nil })
	switch {
	case l == nil:
		return tier.Scrubbed{}, fmt.Errorf("scrub: %w", notThere("there is no disk tier; disk.capacity is 0"))
	case l.Off():
		return tier.Scrubbed{}, fmt.Errorf("scrub: %w", tier.ErrOff)
	}
	return l.Scrubber.Scrub(ctx, bytesPerSecond, func(k key.Key) { s.index.syncGone(l.place, departed.Corrupt, k) })
}

// scrubs is how fast the background scrub is to read.
type scrubs struct {
	rate    atomic.Int64  // bytes per second; 0 = it rests
	changed chan struct{} // capacity 1
}

func (s *scrubs) setRate(bytesPerSecond int64) {
	if s.rate.Swap(bytesPerSecond) != bytesPerSecond {
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

// keepScrubbing makes one pass after the other, at the configured rate.
func (s *operator) keepScrubbing(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.scrubs.changed: // and a pause
			continue
		case <-time.After(scrubPause):
		}
		if rate := s.scrubs.rate.Load(); rate > 0 && s.scanning() == 0 {
			s.scrubOnce(ctx, rate)
		}
	}
}

// scrubOnce makes one pass, unless the rate changes.
func (s *operator) scrubOnce(ctx context.Context, rate int64) {
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
