package tier

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvstored/kvstored/key"
)

// Purged is what one step of a purge found.
type Purged struct {
	Known uint64 // chunks that were known here, in any tier
	Found uint64 // what the shared tier had besides
	Bytes uint64 // of that
	Next  string // where the next step begins; "" = this was the last one
}

// Purge forgets every chunk of a space, in a shared tier also what others stored
// there, step by step: the first one, with after "", deletes what is known here,
// and each at most a page of what the shared tier has. The next one begins after
// Next. A step that failed can be made again, and so can all of them: what is
// gone is not found again, nor after a power failure. A dry one only counts; what is known here and in the
// shared tier counts twice then. While what an earlier process left on disk is
// not all known it is ErrOff.
func (s *Stack) Purge(ctx context.Context, id key.SpaceID, after string, dry bool) (p Purged, err error) {
	if after == "" {
		if p.Known, err = s.purgeKnown(ctx, id, dry); err != nil {
			err = fmt.Errorf("purge: %w", err)
		}
	}
	far, ok := s.tiers[Remote].(Shared)
	if !ok || !s.reach(id).Has(Remote) {
		return p, err
	}
	found, perr := far.Purge(ctx, id, after, dry, func(k key.Key) { s.forget(Remote, k) })
	if perr != nil {
		err = errors.Join(err, fmt.Errorf("purge %s: %w", Remote, perr))
	}
	found.Known = p.Known
	return found, err
}

// purgeKnown is Purge for what the index knows.
func (s *Stack) purgeKnown(ctx context.Context, id key.SpaceID, dry bool) (uint64, error) {
	if err := s.scanned(); err != nil {
		return 0, err
	}
	d := &deletion{from: All, space: id}
	if dry {
		return uint64(len(d.list(s))), nil
	}
	defer s.coming.refuse(d)()
	known := uint64(len(d.list(s)))
	if err := s.delete(ctx, d); err != nil {
		return known, err
	}
	return known, s.sync(ctx)
}

// sync has what every tier below has done up to now survive a power failure.
func (s *Stack) sync(ctx context.Context) error {
	for _, w := range s.writers {
		if r, ok := w.to.(Recoverer); ok {
			if err := r.Sync(ctx); err != nil {
				return fmt.Errorf("sync %s: %w", w.place, err)
			}
		}
	}
	return nil
}

// DeleteSpace is a purge in one call. It returns how many chunks there were.
func (s *Stack) DeleteSpace(ctx context.Context, id key.SpaceID) (n int, err error) {
	for next := ""; ; {
		p, err := s.Purge(ctx, id, next, false)
		n += int(p.Known + p.Found)
		if next = p.Next; next == "" || err != nil {
			return n, err
		}
	}
}
