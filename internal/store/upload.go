package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// The bounds of a round of an upload, after which the next chunks are enqueued: few are
// promoted at a time, and few questions stand beside those of loads.
const (
	roundChunks = 32
	roundBytes  = 64 << 20
)

// Uploaded is how the chunks of one step of an upload fared.
type Uploaded struct {
	writeback.Volume        // the shared tier has them now
	Present          uint64 `json:"present_chunks"` // it had them already
	Gone             uint64 `json:"gone_chunks"`    // deleted, expired or wrong by then
	Failed           uint64 `json:"failed_chunks"`
	FailedBytes      uint64 `json:"failed_bytes"`
	Next             uint64 `json:"-"` // where the next step begins; 0: this was the last
}

// Upload is a step of writing to the shared tier the chunks of this machine that it is
// not known to have: a few hundred, in the order of the index, which each daemon has its
// own of, so that two rarely send the same chunk. The first step begins at 0. The tier is
// asked for a chunk first. Those that it lacks its writer gets, which looks at a chunk
// again when its put begins and when that has ended. After an error the step can be made
// again.
func (s *Operator) Upload(ctx context.Context, from uint64) (u Uploaded, err error) {
	shared := s.levels.first((*level).IsShared)
	if shared == nil {
		return u, fmt.Errorf("upload: %w", notThere("there is no remote tier"))
	}
	if err := s.levels.scanned(s.levels.own()); err != nil {
		return u, fmt.Errorf("upload: %w", err)
	}
	var ks []key.Key
	u.Next = s.index.sweep(from, func(e *index.Entry) {
		if lacks(shared, tier.Set(e.Loc)) && !s.writers.IsLocal(e.Space) && !s.distrusted.Has(e.Space) {
			ks = append(ks, key.Key{Space: e.Space, Hash: e.Hash})
		}
	})
	listed := uint64(len(ks))
	recs, err := s.records(ctx, slices.DeleteFunc(ks, s.ages.book.Expired))
	if err == nil {
		u.Gone = listed - uint64(len(recs))
	}
	for err == nil && len(recs) > 0 {
		n := round(recs)
		err = s.uploadRound(ctx, shared, recs[:n], &u)
		recs = recs[n:]
	}
	if err != nil {
		err = fmt.Errorf("upload: %w", err)
	}
	return u, err
}

// round is how many of recs are one.
func round(recs []tier.Record) (n int) {
	for bytes := 0; n < min(len(recs), roundChunks) && (n == 0 || bytes+int(recs[n].Size) <= roundBytes); n++ {
		bytes += int(recs[n].Size)
	}
	return n
}

// records is what the tiers of this machine know of ks, as far as they still have them.
func (s *Operator) records(ctx context.Context, ks []key.Key) (recs []tier.Record, err error) {
	s.levels.hot.HandedOver() // a victim is in transit from now on
	var below []key.Key
	for _, k := range ks {
		if e, st := s.levels.hot.Ledger().Find(k); st == ledger.Resident {
			recs = append(recs, tier.HotRecord(e, 0))
		} else if r, ok := s.writers.InTransit(k); ok {
			recs = append(recs, r)
		} else {
			below = append(below, k)
		}
	}
	for _, l := range s.levels.below {
		if l.IsShared() || l.Recoverer == nil || len(below) == 0 {
			continue
		}
		more, err := l.Recoverer.Records(ctx, below)
		if err != nil {
			return nil, err
		}
		recs = append(recs, more...)
	}
	return recs, nil
}

func (s *Operator) uploadRound(ctx context.Context, shared *level, recs []tier.Record, u *Uploaded) error {
	if shared.Off() {
		shared.Probe()
	}
	lacking, err := s.askFor(ctx, shared, recs)
	if err != nil {
		return err
	}
	u.Present += uint64(len(recs) - len(lacking))
	shared.writer.Add(lacking...)
	if err := shared.writer.Flush(ctx, false, true); err != nil {
		return err
	}
	for i := range lacking {
		r := &lacking[i]
		deleting := s.promotions.refuses(r.Key) // before the look: one that has ended has left the index
		switch at := s.index.Where(r.Key); {
		case at.Has(shared.Place):
			u.Volume = u.Plus(writeback.Volume{Chunks: 1, Bytes: uint64(r.Size)})
		case at == 0 || deleting || s.ages.book.Expired(r.Key):
			u.Gone++
		default:
			u.Failed, u.FailedBytes = u.Failed+1, u.FailedBytes+uint64(r.Size)
		}
	}
	if shared.Health == nil {
		return nil
	}
	if why := shared.Health.Trouble(); why != nil {
		return fmt.Errorf("the %s tier takes nothing: %w: %w", shared.Place, tier.ErrOff, why)
	}
	return nil
}

// askFor returns the records of chunks that a tier says it lacks. The index has the others.
func (s *Operator) askFor(ctx context.Context, shared *level, recs []tier.Record) (lacking []tier.Record, err error) {
	ks, have := make([]key.Key, len(recs)), make([]bool, len(recs))
	for i := range recs {
		ks[i] = recs[i].Key
	}
	if err := shared.Tier.Tier.Contains(ctx, ks, have); err != nil {
		return nil, err
	}
	for i, k := range ks {
		if !have[i] {
			lacking = append(lacking, recs[i])
			continue
		}
		s.index.Insert(shared.Place, recs[i:i+1])
		// A deletion comes to the shared tier last: it may have been there since.
		if s.index.Where(k) == tier.Of(shared.Place) {
			s.index.Clear(shared.Place, explain.Deleted, k)
		}
	}
	return lacking, nil
}

// Holdings is how many of the known chunks each tier holds.
type Holdings struct {
	Chunks uint64                `json:"chunks"` // in any tier
	Tiers  map[tier.Place]uint64 `json:"tiers"`  // of those, in each tier there is
	// Missing is the chunks of this machine that the shared tier is not known to have.
	// Local is the chunks that it never gets: see KeepLocal.
	Missing      uint64 `json:"missing_chunks"`
	MissingBytes uint64 `json:"missing_bytes"`
	Local        uint64 `json:"local_chunks"`
}

// Holdings counts the index. It is an error while that does not know all that an
// earlier process left on this machine.
func (s *Operator) Holdings(ctx context.Context) (Holdings, error) {
	h := Holdings{Tiers: make(map[tier.Place]uint64, len(s.levels.all))}
	if err := s.levels.scanned(s.levels.own()); err != nil {
		return h, fmt.Errorf("holdings: %w", err)
	}
	for _, l := range s.levels.all {
		h.Tiers[l.Place] = 0
	}
	shared := s.levels.first((*level).IsShared)
	for next, more := uint64(0), true; more && ctx.Err() == nil; more = next != 0 {
		var missing []key.Key
		next = s.index.sweep(next, func(e *index.Entry) {
			at := tier.Set(e.Loc)
			h.Chunks++
			for _, l := range s.levels.all {
				if at.Has(l.Place) {
					h.Tiers[l.Place]++
				}
			}
			switch {
			case !lacks(shared, at):
			case s.writers.IsLocal(e.Space):
				h.Local++
			default:
				missing = append(missing, key.Key{Space: e.Space, Hash: e.Hash})
			}
		})
		for _, k := range missing {
			h.Missing, h.MissingBytes = h.Missing+1, h.MissingBytes+uint64(s.levels.sizeOf(k))
		}
	}
	return h, ctx.Err()
}

// lacks reports whether a chunk that is in some tiers is not in the shared one.
func lacks(shared *level, at tier.Set) bool { return shared != nil && !at.Has(shared.Place) }
