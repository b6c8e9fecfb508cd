package disk

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// syncRun is one Sync.
type syncRun struct {
	t       *instance
	fails   uint64    // syncs of segments that had failed before
	dropped []key.Key // in doubt, see dropDoubted
}

func newSync(t *instance) *syncRun { return &syncRun{t: t, fails: t.segments.syncFails.Load()} }

// run drops doubted entries and writes the headers of freed extents, then syncs.
// The error has the chunks that it has dropped, whether or not the rest was synced.
func (s *syncRun) run(ctx context.Context) error {
	err := s.dropAndSync(ctx)
	if len(s.dropped) > 0 {
		return &tier.DroppedError{Keys: s.dropped, Err: err}
	}
	return err
}

func (s *syncRun) dropAndSync(ctx context.Context) error {
	if err := s.dropDoubted(ctx); err != nil {
		return err
	}
	if err := s.t.tombs.flush(ctx); err != nil {
		return err
	}
	return s.sync(ctx)
}

// sync syncs the segments, then the database.
func (s *syncRun) sync(ctx context.Context) error {
	t := s.t
	if err := s.volumes(ctx); err != nil {
		return err
	}
	if err := t.await(ctx, startCall(t.metaDev, s.meta, nil)); err != nil {
		return err
	}
	// A sync of another call has failed, which takes what this one covers.
	if doubted, _ := t.segments.doubted(); len(doubted) > 0 || t.segments.syncFails.Load() != s.fails {
		return errDoubted
	}
	return nil
}

// volumes syncs the segments of all volumes at once.
func (s *syncRun) volumes(ctx context.Context) (err error) {
	t := s.t
	syncs := make([]*calling, 0, len(t.volumes))
	for _, v := range t.volumes {
		done, turnErr := s.turn(ctx, v)
		if turnErr != nil {
			err = turnErr
			break
		}
		syncs = append(syncs, startCall(v.dev, func() error { return t.segments.sync(v) }, done))
	}
	for i, c := range syncs {
		err = errors.Join(err, t.volumes.blame(t.volumes[i], true, t.await(ctx, c)))
	}
	return err
}

// turn waits for the other Sync of a volume, which may hang; done ends the
// caller's.
func (s *syncRun) turn(ctx context.Context, v *volume) (done func(), err error) {
	select {
	case v.syncing <- struct{}{}:
		return func() { <-v.syncing }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.t.ended:
		return nil, tier.ErrClosed
	}
}

// dropDoubted deletes the entries that were written to a segment between its
// last good sync and one that failed. Nothing is known of a segment that
// recovery has not come to. A Put that is on its way from the database to the
// ledger is waited for: it may not know of the failure.
func (s *syncRun) dropDoubted(ctx context.Context) error {
	t := s.t
	list, spans := t.segments.doubted()
	if len(list) > 0 {
		if err := t.fills.wait(ctx, t.ended); err != nil {
			return err
		}
	}
	for i, g := range list {
		if t.scan.active.Load() {
			return fmt.Errorf("%s: %w: it is dropped once the tier has been scanned", g.path, errDoubted)
		}
		out, err := reclaim{t: t}.empty(ctx, g, spans[i].has, nil)
		s.dropped = append(s.dropped, out...)
		t.log.Error().Err(err).Str("path", g.path).Int("dropped", len(out)).
			Msg("a segment of the disk tier could not be synced; what was written to it since it last was is dropped")
		if err != nil {
			return err
		}
		t.segments.coverFree(g)
		if err := t.tombs.flush(ctx); err != nil {
			return err
		}
		t.segments.resolved(g, spans[i])
	}
	return nil
}

// meta syncs the database, and the notes beside it.
func (s *syncRun) meta() error {
	t := s.t
	_, err := t.deletionLog.sync()
	if err := errors.Join(err, t.set.Meta.Sync()); err != nil {
		return err
	}
	return t.db.Sync()
}
