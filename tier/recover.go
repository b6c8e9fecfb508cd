package tier

import (
	"context"
	"fmt"
	"time"
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
			s.settleAll(Disk, recs)
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.recovering.Store(false) // also if it failed: lookups must not wait for a tier in trouble
		if err == nil {
			s.unscanned.Store(false)
			s.log.Info().Int("chunks", n).Msg("disk tier recovered")
			for _, w := range s.writers {
				w.filled() // a smaller capacity, or other watermarks
			}
			return nil
		}
		s.count.recoverFailed.Add(1)
		s.log.Error().Err(err).Stringer("again_in", pause).Msg("the disk tier could not be scanned; the daemon serves without what is on it")
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settleAll is settleRecords for any number of records.
func (s *Stack) settleAll(p Place, recs []Record) {
	for len(recs) > 0 {
		part := recs[:min(settleBatch, len(recs))]
		s.settleRecords(p, part)
		recs = recs[len(part):]
	}
}
