package disk

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// survey compares the headers of the segments with the records of the database.
// After an end that was not orderly the headers that no record knows are of puts
// that were not acknowledged, and of extents whose tombstone was not written
// yet: they get one. Where the database was lost, or is not to be believed, the
// headers decide (adopt): one that no record knows is taken for an
// entry, unless a younger one speaks for its bytes or for its key, the key was
// deleted since, or the payload does not have its checksum; and a record that a
// younger header contradicts is dropped.
//
// Extents are always taken from the front of a run of free bytes, and a header
// speaks for the whole run (database.Header.Void). So the remains of older
// headers, or of payloads that hold the like, are covered by a younger header
// that is in front of them and has not been overwritten.
type survey struct {
	t     *instance
	adopt bool

	mu struct {
		sync.Mutex
		best  map[key.Key]version // of the entries known and found, if they are adopted
		found []database.Entry
		stale []key.Key // of records that a header contradicts
		dead  []tombstone
	}
	deletions map[key.Key]uint64
}

// version is the youngest payload of a key.
type version struct {
	seq  uint64
	loc  location
	size uint32
	seen bool // where loc says
}

func versionOf(e *database.Entry) version {
	if e.Inline {
		return version{seq: e.Seq, loc: inlined, size: e.Size}
	}
	return version{seq: e.Seq, loc: locate(e.Extent), size: e.Size}
}

// compare surveys the old segments, of which entries, in order of place, are
// known, and returns the entries with those adopted and without those
// contradicted.
func (r *recovery) compare(ctx context.Context, entries []database.Entry, adopt bool) ([]database.Entry, error) {
	t := r.t
	s := &survey{t: t, adopt: adopt}
	t.surveyed.Store(true)
	var err error
	if s.deletions, err = ask(ctx, t, t.deletionLog.read); err != nil {
		return nil, err
	}
	s.mu.best = make(map[key.Key]version)
	if adopt {
		for i := range entries {
			s.mu.best[entries[i].Key] = versionOf(&entries[i])
		}
		t.rebuilding.begin(r.oldBytes())
		t.log.Warn().Int("known", len(entries)).Msg("the disk tier's index is made anew from the headers of the segments, in the background")
	}
	var g errgroup.Group
	for _, v := range t.volumes {
		g.Go(func() error { return s.volume(ctx, v, entries) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	entries, err = s.take(ctx, entries)
	t.segments.requeueTombs(s.mu.dead...)
	if err == nil {
		if err = t.tombs.flush(ctx); blockio.IsFault(err) || errors.Is(err, tier.ErrOff) {
			err = nil // tried again, by the next start if need be
		}
	}
	return entries, err
}

// oldBytes is the size of the segments that an earlier process left.
func (r *recovery) oldBytes() (total int64) {
	t := r.t
	for _, g := range t.segments.all() {
		total += t.segments.oldSize(g.number)
	}
	return total
}

// volume surveys the segments of one path. A path whose device hangs is left
// to the next start.
func (s *survey) volume(ctx context.Context, v *volume, entries []database.Entry) error {
	for _, seg := range s.t.segments.listOf(v) {
		if s.t.segments.oldSize(seg.number) == 0 {
			continue
		}
		err := s.segment(ctx, seg, entries)
		if blockio.IsFault(err) {
			s.t.surveyed.Store(false)
			s.t.log.Error().Err(err).Str("path", v.dir).Msg("the headers of a path cannot be read; the next start tries again")
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// take adds the adopted entries to entries and to the database, and takes the
// contradicted ones out of both.
func (s *survey) take(ctx context.Context, entries []database.Entry) ([]database.Entry, error) {
	if !s.adopt {
		return entries, nil
	}
	outdated := func(e database.Entry) bool {
		best, is := s.mu.best[e.Key]
		return !is || best.seq != e.Seq
	}
	entries = slices.DeleteFunc(entries, outdated)
	found := slices.DeleteFunc(s.mu.found, outdated)
	s.t.log.Info().Int("entries", len(found)).Int("contradicted", len(s.mu.stale)).Msg("found in the headers of the segments")
	if err := (&recovery{t: s.t}).adoptRecords(ctx, found); err != nil {
		return nil, err
	}
	entries, overlapped := resolve(append(entries, found...), s.t.segments.oldSize)
	return entries, (&recovery{t: s.t}).dropRecords(ctx, without(append(s.mu.stale, overlapped...), entries))
}

func (s *survey) discard(e *database.Entry, void int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.dead = append(s.mu.dead, tombOf(versionOf(e), void))
}

// tombOf is a tombstone that speaks for what the header did, and as late: what
// has come behind it since has a higher number.
func tombOf(v version, void int64) tombstone {
	return tombstone{loc: v.loc, n: int64(v.size), void: void, seq: v.seq}
}
