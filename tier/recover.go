package tier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kvstored/kvstored/key"
)

// A scan that failed is tried again after recoverPause, then after twice as
// long, up to recoverPauseMax: a device may come back, and nobody waits.
const (
	recoverPause    = time.Second
	recoverPauseMax = time.Minute
)

// Ready reports whether what an earlier process left has been found, or could
// not be: the store then serves without it.
func (s *Stack) Ready() bool { return !s.recovering.Load() }

// scanned is an error while the disk may have what nobody knows of.
func (s *Stack) scanned() error {
	if s.unscanned.Load() {
		return fmt.Errorf("the disk tier is still being scanned; try again when it is ready: %w", ErrOff)
	}
	return nil
}

// recover fills the index from the tier that outlives the process. A tier
// that cannot be scanned costs hits and no more: it is said loudly and tried
// again, and everything else goes on.
func (s *Stack) recover(ctx context.Context) error {
	r, ok := s.tiers[Disk].(Recoverer)
	if !ok {
		return nil
	}
	for pause := recoverPause; ; pause = min(2*pause, recoverPauseMax) {
		n := 0
		err := r.Recover(ctx, func(recs []Record) {
			n += len(recs)
			s.attachAll(ctx, Disk, recs)
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.recovering.Store(false) // also if it failed: lookups must not wait for a tier in trouble
		if err == nil {
			s.settleLost(Disk)
			s.unscanned.Store(false)
			s.untold.forget()
			s.log.Info().Int("chunks", n).Msg("disk tier recovered")
			for _, w := range s.writers {
				w.filled() // a smaller capacity, or other watermarks
			}
			if !s.awaitLoss(ctx) {
				return ctx.Err()
			}
			pause = recoverPause / 2
			continue
		}
		if errors.Is(err, ErrOff) { // it says why itself, and may be on soon
			pause = recoverPause / 2
			if !sleep(ctx, recoverPause) {
				return ctx.Err()
			}
			continue
		}
		s.count.recoverFailed.Add(1)
		s.log.Error().Err(err).Stringer("again_in", pause).Msg("the disk tier could not be scanned; the daemon serves without what is on it")
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// sleep is false when ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// awaitLoss returns when the tier has been lost and opened again. It is false
// when ctx has ended, and where that does not come to pass.
func (s *Stack) awaitLoss(ctx context.Context) bool {
	r, ok := under[Reopener](s.tiers[Disk])
	if !ok {
		return false
	}
	select {
	case <-r.Reopened():
		s.unscanned.Store(true)
		return true
	case <-ctx.Done():
		return false
	}
}

// settleLost has the index forget what a tier that was opened again has lost.
func (s *Stack) settleLost(p Place) {
	var spaces []key.SpaceID
	s.mu.Lock()
	s.mu.tree.Spaces(func(id key.Hash) bool {
		spaces = append(spaces, id)
		return true
	})
	s.mu.Unlock()
	for _, id := range spaces {
		for ks := range slices.Chunk(s.keysOf(id, Of(p)), settleBatch) {
			s.settle(p, ks...)
		}
	}
}

// attachAll is attach for any number of records.
func (s *Stack) attachAll(ctx context.Context, p Place, recs []Record) {
	for len(recs) > 0 {
		part := recs[:min(settleBatch, len(recs))]
		s.attach(ctx, p, part)
		s.dropOutlived(ctx, part)
		recs = recs[len(part):]
	}
}
