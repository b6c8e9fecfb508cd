package disk

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Sync makes everything Put so far survive a power failure: the extents, then
// the records. Entries of a segment whose sync has failed before are dropped, and
// are in a *tier.DroppedError. A device may take its time for that and end
// nothing else meanwhile, so only ctx bounds it.
func (t *Tier) Sync(ctx context.Context) error {
	i := t.now.Load()
	err := i.usable(ctx)
	if err == nil {
		err = newSync(i).run(ctx)
	}
	return t.failed("sync", err)
}

// syncRun is one Sync.
type syncRun struct {
	t       *instance
	fails   uint64    // syncs of segments that had failed before
	dropped []key.Key // unverified, see dropUnverified
}

func newSync(t *instance) *syncRun { return &syncRun{t: t, fails: t.segments.syncFails.Load()} }

// run drops unverified entries and writes the headers of freed extents, then syncs.
// The error has the chunks that it has dropped, whether or not the rest was synced.
func (s *syncRun) run(ctx context.Context) error {
	err := s.dropUnverified(ctx)
	if err == nil {
		err = s.t.tombs.flush(ctx)
	}
	if err == nil {
		err = s.sync(ctx)
	}
	if len(s.dropped) > 0 {
		return &tier.DroppedError{Keys: s.dropped, Err: err}
	}
	return err
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
	if unverified, _ := t.segments.unverified(); len(unverified) > 0 || t.segments.syncFails.Load() != s.fails {
		return errUnverified
	}
	return nil
}

// volumes syncs the segments of all volumes at once. The other Sync of a volume, which may
// hang, is waited for.
func (s *syncRun) volumes(ctx context.Context) (err error) {
	t := s.t
	syncs := make([]*work, 0, len(t.volumes))
	for _, v := range t.volumes {
		if err = v.syncing.take(ctx, t.ended); err != nil {
			break
		}
		syncs = append(syncs, startCall(v.dev, func() error { return t.segments.sync(v) }, v.syncing.leave))
	}
	for i, c := range syncs {
		err = errors.Join(err, t.volumes.blame(t.volumes[i], true, t.await(ctx, c)))
	}
	return err
}

// dropUnverified deletes the entries that were written to a segment between its
// last good sync and one that failed. Nothing is known of a segment that
// recovery has not come to. A Put that is on its way from the database to the
// ledger is waited for: it may not know of the failure.
func (s *syncRun) dropUnverified(ctx context.Context) error {
	t := s.t
	list, spans := t.segments.unverified()
	if len(list) > 0 {
		if err := t.fills.wait(ctx, nil, t.ended); err != nil {
			return err
		}
	}
	for i, g := range list {
		if t.scan.active.Load() {
			return fmt.Errorf("%s: %w: it is dropped once the tier has been scanned", g.path, errUnverified)
		}
		drop := reclaim{t: t}
		err := drop.empty(ctx, g, spans[i].has)
		s.dropped = append(s.dropped, drop.gone...)
		t.log.Error().Err(err).Str("path", g.path).Int("dropped", len(drop.gone)).
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

// errUnverified says that a segment may lack entries that were written to it.
var errUnverified = errors.New("a segment could not be synced; what was written to it since it last was counts as not written")

// syncState tells from which write on a segment is not known to be synced. The
// kernel says once that it could not write a page, and takes it for written from
// then on, so after a sync that failed the next one proves nothing about the
// writes before: their entries are unverified, and dropped.
//
//	clean --a write ends--> dirty --sync--> clean
//	                          |
//	                          +--sync fails--> unverified --dropped, and free
//	                                              space covered anew--> dirty
//
// A Sync that finds an unverified segment drops first, and fails where it cannot.
type syncState struct {
	dirtySince atomic.Uint64 // the lowest number of a write since; 0: none
	fails      atomic.Uint64 // syncs that failed

	// Guarded by segments.mu.
	unverified span
}

// span is a range of sequence numbers, both ends included; the zero span is empty.
type span struct{ from, to uint64 }

func (s span) has(e *database.Entry) bool { return s.from <= e.Seq && e.Seq <= s.to }

// wrote notes a write that has ended, under its number. It is called before
// anything else learns that the write has ended.
func (u *syncState) wrote(seq uint64) {
	seq = max(seq, 1) // 0 is nothing
	for {
		since := u.dirtySince.Load()
		if since != 0 && since <= seq || u.dirtySince.CompareAndSwap(since, seq) {
			return
		}
	}
}

// sync makes what v's files hold survive a power failure, and their names. One
// call of a volume is at work at a time: the kernel tells one of several that
// sync a file that pages of it are lost.
func (s *segments) sync(v *volume) error {
	for _, g := range s.listOf(v) {
		since := g.syncState.dirtySince.Swap(0)
		if since == 0 {
			continue
		}
		if err := g.file.Sync(); err != nil {
			if s.isRemoved(g) {
				continue // its file was closed, and holds nothing
			}
			g.syncState.wrote(since)
			s.markUnverified(g)
			return fmt.Errorf("%s: %w: %w", g.path, errUnverified, err)
		}
	}
	return v.at.Sync()
}

// isRemoved reports whether g has left the list, as it does before its file is
// closed.
func (s *segments) isRemoved(g *segment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(g.number) != g
}

// markUnverified notes that what g was written may not be there. A write that ends later
// finds that a sync has failed since it began.
func (s *segments) markUnverified(g *segment) {
	s.syncFails.Add(1)
	g.syncState.fails.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	from := g.syncState.dirtySince.Load()
	if g.syncState.unverified.from != 0 {
		from = min(from, g.syncState.unverified.from)
	}
	g.syncState.unverified = span{from, s.seq.Load()}
}

// unverified are the segments with unverified entries, and which these are.
func (s *segments) unverified() (list []*segment, spans []span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.volumes {
		for _, g := range v.list {
			if g.syncState.unverified.from != 0 {
				list, spans = append(list, g), append(spans, g.syncState.unverified)
			}
		}
	}
	return list, spans
}

// resolved ends that g is unverified, unless that has become more.
func (s *segments) resolved(g *segment, was span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.syncState.unverified == was {
		g.syncState.unverified = span{}
	}
}

// coverFree has each free run of g covered by a new tombstone: the one that
// covers it now may not be on the device, and an older header there, of a deleted
// entry, would count when the database is lost.
func (s *segments) coverFree(g *segment) {
	type run struct{ off, n int64 }
	var runs []run
	s.mu.Lock()
	for g.free != nil {
		n := min(g.free.LargestFree(), arena.RoundDown(math.MaxUint32))
		off, ok := g.free.Alloc(n)
		if !ok {
			break
		}
		runs = append(runs, run{off, n})
	}
	for _, r := range runs { // one page holds no header of an extent
		if r.n <= database.HeaderBytes {
			g.free.Free(r.off, r.n)
		}
	}
	s.mu.Unlock()
	for _, r := range runs {
		if r.n > database.HeaderBytes {
			s.free(locate(database.Extent{Segment: g.number, Offset: r.off}), r.n-database.HeaderBytes)
		}
	}
}
