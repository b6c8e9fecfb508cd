package tier

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/key"
)

// scrubPause is the least time between two passes of the background scrub.
const scrubPause = time.Minute

// Scrubbed is what one pass over a tier found.
type Scrubbed struct {
	Chunks uint64 // read to the end
	Bytes  uint64 // of payload
	Wrong  uint64 // of those, deleted because they did not have their checksum
	Failed uint64 // could not be read; they stay
}

// Scrubber is a tier that can look for payloads that have gone bad.
type Scrubber interface {
	// Scrub reads every payload at most at the rate (0 = no limit) and
	// deletes those that do not have their checksum, telling gone of each.
	// After an error the result is what was done so far.
	Scrub(ctx context.Context, bytesPerSecond int64, gone func(key.Key)) (Scrubbed, error)
}

// under returns what a tier, or the one below its decorators, is as a T.
func under[T any](t Tier) (found T, ok bool) {
	for t != nil {
		if found, ok = t.(T); ok {
			return found, true
		}
		u, wrapped := t.(interface{ Unwrap() Tier })
		if !wrapped {
			break
		}
		t = u.Unwrap()
	}
	return found, false
}

// Scrub makes one pass over the disk tier, in addition to those in the background.
func (s *Stack) Scrub(ctx context.Context, bytesPerSecond int64) (Scrubbed, error) {
	sc, ok := under[Scrubber](s.tiers[Disk])
	switch {
	case !ok:
		return Scrubbed{}, fmt.Errorf("scrub: %w", missing("there is no disk tier; disk.capacity is 0"))
	case isOff(s.tiers[Disk]):
		return Scrubbed{}, fmt.Errorf("scrub: %w", ErrOff)
	}
	return sc.Scrub(ctx, bytesPerSecond, func(k key.Key) { s.settle(Disk, k) })
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
func (s *Stack) keepScrubbing(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.scrubs.changed: // and a pause
			continue
		case <-time.After(scrubPause):
		}
		if rate := s.scrubs.rate.Load(); rate > 0 && s.Ready() {
			s.scrubOnce(ctx, rate)
		}
	}
}

// scrubOnce makes one pass, unless the rate changes.
func (s *Stack) scrubOnce(ctx context.Context, rate int64) {
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
	case errors.Is(err, ErrOff):
	case err != nil:
		s.log.Warn().Err(err).Msg("scrub did not come to its end")
	case sum.Wrong > 0 || sum.Failed > 0:
		s.log.Warn().Uint64("chunks", sum.Chunks).Uint64("wrong", sum.Wrong).Uint64("unreadable", sum.Failed).Msg("scrub found damage")
	}
}
