package stack

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvstored/kvstored/internal/departed"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Purge forgets every chunk of a space, in a shared tier also what others stored
// there, step by step: the first one, with after "", deletes the chunks known here,
// and each at most a page of what the shared tier has. The next one begins after
// Next. A step that failed can be made again, and so can all of them: a chunk
// that is gone is not found again, nor after a power failure. A dry one only counts;
// a chunk that is known here and in the shared tier counts twice then. While what an earlier process left on disk is
// not all known it is ErrOff.
func (s *remover) Purge(ctx context.Context, id key.SpaceID, after string, dry bool) (p tier.Purged, err error) {
	if after == "" {
		if p.Known, err = s.purgeKnown(ctx, id, dry); err != nil {
			err = fmt.Errorf("purge: %w", err)
		}
	}
	far := s.levels.far()
	if far == nil || !s.reach(id).Has(far.place) {
		return p, err
	}
	found, perr := far.Shared.Purge(ctx, id, after, dry, func(k key.Key) { s.index.clear(far.place, departed.Deleted, k) })
	if perr != nil {
		err = errors.Join(err, fmt.Errorf("purge %s: %w", far.place, perr))
	}
	found.Known = p.Known
	return found, err
}

// purgeKnown is Purge for what the index knows.
func (s *remover) purgeKnown(ctx context.Context, id key.SpaceID, dry bool) (uint64, error) {
	if err := s.scanned(tier.All); err != nil {
		return 0, err
	}
	d := &deletion{from: tier.All, whole: true, space: id}
	if dry {
		return uint64(len(d.list(s.index))), nil
	}
	defer s.promotions.refuse(d)()
	known := uint64(len(d.list(s.index)))
	if err := s.delete(ctx, d); err != nil {
		return known, err
	}
	return known, s.sync(ctx)
}

// sync has what every tier below has done up to now survive a power failure.
func (d *dram) sync(ctx context.Context) error {
	for _, l := range d.levels.below {
		if l.Recoverer != nil {
			if err := l.writer.sync(ctx); err != nil {
				return fmt.Errorf("sync %s: %w", l.place, err)
			}
		}
	}
	return nil
}

// DeleteSpace is a purge in one call. It returns how many chunks there were.
func (s *remover) DeleteSpace(ctx context.Context, id key.SpaceID) (n int, err error) {
	for next := ""; ; {
		p, err := s.Purge(ctx, id, next, false)
		n += int(p.Known + p.Found)
		if next = p.Next; next == "" || err != nil {
			return n, err
		}
	}
}
