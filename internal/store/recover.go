package store

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/tier"
)

// A scan that failed is tried again after recoverPause, then after twice as
// long, up to recoverPauseMax: a device may come back, and no request waits.
const (
	recoverPause    = time.Second
	recoverPauseMax = time.Minute
)

// scan is how far the scan of a tier that outlives the process is.
type scan struct {
	running atomic.Bool // for the first time: what it has is not all known
	unknown atomic.Bool // no scan of it has come to its end yet
	offline offlineSums
	// covered is the opening of the tier that the last scan was of, see
	// tier.Reopener: what that one lacks is known, and is written again.
	covered atomic.Uint64
}

func (s *scan) begin() {
	s.running.Store(true)
	s.unknown.Store(true)
}

// Recovery fills the index from the tiers that outlive the process.
type Recovery struct {
	levels  *levels
	index   *tierIndex
	writers *writeback.Writers
	failed  atomic.Uint64
	log     zerolog.Logger
}

// Ready reports whether what an earlier process left has been found, or could
// not be: the store then serves without it.
func (r *Recovery) Ready() bool { return r.levels.scanning() == 0 }

// recover fills the index from one tier. A tier that cannot be scanned costs hits
// and no more: that is logged as an error and tried again, and everything else
// goes on.
func (r *Recovery) recover(ctx context.Context, l *level) error {
	for pause := recoverPause; ; pause = min(2*pause, recoverPauseMax) {
		n, opening := 0, l.openings()
		err := l.Recoverer.Recover(ctx, func(recs []tier.Record) {
			n += len(recs)
			r.attachAll(ctx, l, recs)
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			r.recovered(l, n, opening)
			if !r.awaitLoss(ctx, l) {
				return ctx.Err()
			}
			pause = recoverPause / 2
			continue
		}
		l.scan.running.Store(false)      // lookups must not wait for a tier in trouble
		if errors.Is(err, tier.ErrOff) { // it says why itself, and may be on soon
			pause = recoverPause / 2
			if base.Sleep(ctx, recoverPause) != nil {
				return ctx.Err()
			}
			continue
		}
		r.failed.Add(1)
		r.log.Error().Err(err).Stringer("again_in", pause).Msgf("the %s tier could not be scanned; the daemon serves without what is on it", l.Place)
		if base.Sleep(ctx, pause) != nil {
			return ctx.Err()
		}
	}
}

// recovered ends a scan of an opening of the tier that has brought n chunks.
func (r *Recovery) recovered(l *level, n int, opening uint64) {
	r.syncAll(l)
	l.scan.covered.Store(opening)
	l.scan.unknown.Store(false)
	l.scan.offline.reset()
	l.scan.running.Store(false) // last: nothing is refused for want of a scan once the store is ready
	r.log.Info().Int("chunks", n).Msgf("%s tier recovered", l.Place)
	r.writers.KeepWatermarks() // a smaller capacity, or other watermarks
}

// awaitLoss returns when the tier has been lost and opened again. It is false
// when ctx has ended, and where that does not come to pass.
func (r *Recovery) awaitLoss(ctx context.Context, l *level) bool {
	if l.Reopener == nil {
		return false
	}
	select {
	case <-l.Reopener.Reopened():
		l.scan.unknown.Store(true)
		return true
	case <-ctx.Done():
		return false
	}
}

// syncAll has what a tier that was opened again has lost written to it again.
func (r *Recovery) syncAll(l *level) {
	if l.Resident == nil {
		return
	}
	for _, id := range r.index.spaces() {
		gone := slices.DeleteFunc(r.index.keys(id, tier.Of(l.Place)), l.Resident.Has)
		if len(gone) > 0 {
			l.writer.WriteAgain("the tier has lost chunks since it was open last", gone)
		}
	}
}

// attachAll is attach for any number of records.
func (r *Recovery) attachAll(ctx context.Context, l *level, recs []tier.Record) {
	for part := range slices.Chunk(recs, indexBatch) {
		r.index.Insert(l.Place, part)
		r.dropOutlived(ctx, l, part)
	}
}

// Adopt takes up what an earlier process has left in DRAM, which the tier has already:
// the index knows it from then on, and the writers have what the tiers below lack. Call
// it before Run, when each space that is to be kept local is.
func (r *Recovery) Adopt(list []tier.Resumed) {
	recs := make([]tier.Record, 0, indexBatch)
	for part := range slices.Chunk(list, indexBatch) {
		recs = recs[:0]
		for i := range part {
			recs = append(recs, part[i].Record)
		}
		r.index.Insert(tier.CPU, recs)
		for _, l := range r.levels.below {
			r.adoptBelow(l, part)
		}
	}
}

// adoptBelow tells the index what a tier that cannot be asked has, and its writer what
// the tier lacks.
func (r *Recovery) adoptBelow(l *level, part []tier.Resumed) {
	var there []tier.Record
	for i := range part {
		e := &part[i]
		lacks := !e.Below.Has(l.Place)
		if l.writer == r.writers.Nearest(e.Key.Space) {
			lacks = e.Dirty
		}
		switch {
		case lacks && l.writer.Takes(e.Key.Space):
			rec := e.Record
			rec.Sum = 0 // the block has it
			l.writer.Add(rec)
		case lacks:
		case l.Resident == nil: // others are scanned
			there = append(there, e.Record)
		}
	}
	r.index.Insert(l.Place, there)
}
