package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/extent"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/record"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// emitBatch is how many records Recover hands over at once.
const emitBatch = 4096

// scan is the state of the recovery.
type scan struct {
	active  atomic.Bool // there may be records that the ledger does not have yet
	records atomic.Uint64
	lost    atomic.Uint64 // records dropped: damaged, pointing nowhere, overwritten
	damaged atomic.Uint64 // of those, how many were damaged
	newer   atomic.Uint64 // records of a newer program, passed over
	evicted atomic.Uint64 // entries dropped because the capacity is smaller now
	mu      struct {
		sync.Mutex
		deleted map[key.Key]struct{} // while active: the scan must not bring them back
		stored  []key.Key            // while active, in order: they are younger than what it brings
	}
}

// note remembers that k was stored while the scan went on.
func (s *scan) note(k key.Key) {
	if !s.active.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stored = append(s.mu.stored, k)
}

// end ends the scan, and returns what was stored while it went on.
func (s *scan) end() (stored []key.Key) {
	s.active.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	stored = s.mu.stored
	s.mu.deleted, s.mu.stored = nil, nil
	return stored
}

func (s *scan) forget(k key.Key) {
	if !s.active.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.deleted == nil {
		s.mu.deleted = make(map[key.Key]struct{})
	}
	s.mu.deleted[k] = struct{}{}
}

func (s *scan) forgotten(k key.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, is := s.mu.deleted[k]
	return is
}

// deletions is how many keys were deleted since it began.
func (s *scan) deletions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.deleted)
}

// unlessForgotten runs fn so that a deletion of k comes wholly before or after.
func (s *scan) unlessForgotten(k key.Key, fn func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, is := s.mu.deleted[k]; is {
		return false
	}
	return fn()
}

// Recover reads the records that an earlier process left, never a payload,
// and hands the entries that are whole to emit, all of them resident by then.
// It holds about 120 bytes an entry while it runs. Run must be running.
//
// Until it is over, Put writes to new segments only, and Get and Contains ask
// the database for what the ledger does not know. A scan ended by ctx, by a
// device in trouble or by a database that waits to be mended leaves the tier in
// that state; call Recover again. A database that cannot be read to its end is
// another matter, since it never will be: the tier makes do with what could be
// read, and the next Open moves the database aside.
func (t *Tier) Recover(ctx context.Context, emit func([]tier.Record)) error {
	if err := t.usable(ctx); err != nil {
		return fmt.Errorf("disk: recover: %w", err)
	}
	if !t.scan.active.Load() {
		t.surveyed.Store(true) // there are none
		t.rebuilding.end()
		t.db.succeeded()
		return nil
	}
	entries, lost, err := t.readRecords(ctx)
	passing := err != nil && (ctx.Err() != nil || errors.Is(err, errBroken) || isEnvironment(err) || t.commitFails(ctx))
	switch {
	case passing:
		return fmt.Errorf("disk: recover: %w", err)
	case err != nil:
		t.db.giveUp()
		t.log.Error().Err(err).Int("read", len(entries)).
			Msg("the disk tier's database is damaged; what could not be read is lost, and the next start moves the database aside")
	}
	entries, overlapped := resolve(entries, t.oldSegment)
	rebuild := t.rebuilds || len(lost) > 0
	if rebuild || t.unclean || t.scan.deletions() > 0 {
		if entries, err = t.compare(ctx, entries, rebuild); err != nil {
			return fmt.Errorf("disk: recover: %w", err)
		}
	} else {
		t.surveyed.Store(true)
	}
	entries, evicted := t.shrink(entries)
	t.scan.damaged.Store(uint64(len(lost)))
	t.scan.lost.Store(uint64(len(lost)+len(overlapped)) + t.rebuilding.dropped.Load())
	t.scan.evicted.Store(uint64(len(evicted)))
	if err := t.dropRecords(ctx, without(slices.Concat(lost, overlapped, evicted), entries)); err != nil {
		return fmt.Errorf("disk: recover: %w", err)
	}
	orphans := t.reserve(entries)
	t.restore(ctx, entries)
	err = t.bury(ctx)
	if err == nil {
		err = t.unbury(ctx)
	}
	if err != nil {
		t.surveyed.Store(false)
		t.log.Warn().Err(err).Msg("headers are not all in order; the next start sees to it")
	}
	for _, k := range t.scan.end() {
		t.ledger.Touch([]key.Key{k}) // one by one: the last of them is the youngest
	}
	t.rebuilding.end()
	t.db.succeeded()
	if n := t.scan.newer.Load(); n > 0 {
		t.log.Warn().Uint64("records", n).Msg("records of a newer program are passed over; their room is given to others")
	}
	t.log.Info().Int("entries", len(entries)).Int("lost", len(lost)+len(overlapped)).Int("evicted", len(evicted)).
		Uint64("newer", t.scan.newer.Load()).Int("orphan_segments", len(orphans)).Msg("recovered")
	t.emit(entries, emit)
	// The entries are all there whatever becomes of the empty files.
	for _, v := range t.volumes {
		mine := slices.DeleteFunc(slices.Clone(orphans), func(g *segment) bool { return g.volume != v })
		if err := t.call(ctx, v.dev, func() error { return t.segments.unlink(mine) }, nil); err != nil {
			t.log.Warn().Err(err).Str("path", v.dir).Msg("empty segments stay; they count until the next start")
		}
	}
	return nil
}

// commitFails reports whether what a reader of the database fell over may be a
// commit that failed, rather than damage. One that is failing just now says so
// later than the reader does, so a change is sent after it.
func (t *Tier) commitFails(ctx context.Context) bool {
	after := t.newRemoval() // of nothing
	done := after.done
	if err := t.commits.add(after); err != nil {
		return true
	}
	return t.wait(ctx, done, nil) != nil
}

// readRecords collects the records of earlier processes, and the keys of those
// that are damaged. Records of a newer program are passed over: Open refuses
// what this one must not touch, so those are single ones, left for that
// program to find. Their room is given to others.
func (t *Tier) readRecords(ctx context.Context) (entries []record.Entry, lost []key.Key, err error) {
	t.scan.records.Store(0)
	t.scan.newer.Store(0)
	first := t.commits.first
	err = t.db.scan(ctx, func(k, v []byte) error {
		t.scan.records.Add(1)
		var e record.Entry
		switch err := record.DecodeEntry(&e, k, v); {
		case errors.Is(err, record.ErrNewer):
			t.scan.newer.Add(1)
		case err != nil:
			if k, ok := record.ParseEntryKey(k); ok {
				lost = append(lost, k)
			}
		case e.Seq < first: // the others are in the ledger
			entries = append(entries, e)
		}
		return nil
	})
	return entries, lost, err
}

// oldSegment is the size of a segment that an earlier process left, or 0.
func (t *Tier) oldSegment(number uint32) int64 {
	t.segments.mu.Lock()
	defer t.segments.mu.Unlock()
	if g := t.segments.find(number); g != nil && g.free == nil {
		return g.size
	}
	return 0
}

// dropRecords deletes the records of keys that nobody has stored anew, and
// returns when that is committed: only then may their segments go.
func (t *Tier) dropRecords(ctx context.Context, ks []key.Key) error {
	for len(ks) > 0 {
		r := t.newRemoval()
		n, done := min(len(ks), maxRemovals), r.done
		err := t.commits.addWith(func() change {
			for _, k := range ks[:n] {
				if _, state := t.ledger.Find(k); state == ledger.Absent {
					r.keys = append(r.keys, k)
				}
			}
			return r.orNothing()
		})
		if err == nil && len(r.keys) > 0 {
			err = t.wait(ctx, done, nil)
		}
		if err != nil {
			return err
		}
		ks = ks[n:]
	}
	return nil
}

// without returns those of ks that are no entry's: a survey may have found
// another payload of a key.
func without(ks []key.Key, entries []record.Entry) []key.Key {
	if len(ks) == 0 {
		return nil
	}
	rest := make(map[key.Key]struct{}, len(ks))
	for _, k := range ks {
		rest[k] = struct{}{}
	}
	for i := range entries {
		delete(rest, entries[i].Key)
	}
	return slices.DeleteFunc(ks, func(k key.Key) bool { _, is := rest[k]; return !is })
}

// reserve gives the old segments their allocators, with the extents of
// entries, which are in order of place, taken. It removes segments without
// entries from the list and returns them.
func (t *Tier) reserve(entries []record.Entry) (orphans []*segment) {
	for _, g := range t.segments.all() {
		if t.oldSegment(g.number) == 0 && g.size > 0 {
			continue // made by this process
		}
		from, _ := slices.BinarySearchFunc(entries, g.number, func(e record.Entry, n uint32) int {
			return cmp.Compare(e.Extent.Segment, n)
		})
		free := extent.New(g.size)
		for _, e := range entries[from:] {
			if e.Extent.Segment != g.number {
				break
			}
			if !free.Reserve(e.Extent.Offset, int64(e.Extent.Bytes)) {
				panic(fmt.Sprintf("disk: entries of segment %d overlap after they were resolved", g.number))
			}
		}
		t.segments.mu.Lock()
		g.free = free
		if free.UsedBytes() == 0 {
			orphans = append(orphans, g)
			g.volume.list = slices.DeleteFunc(g.volume.list, func(x *segment) bool { return x == g })
		}
		t.segments.mu.Unlock()
	}
	return orphans
}

// restore fills the ledger, least recently used first. Of those used in the
// same second the tail of a chain is older than its head. An entry that the
// ledger refuses, because it contradicts the others, loses its record, and only
// then its extent.
func (t *Tier) restore(ctx context.Context, entries []record.Entry) {
	slices.SortFunc(entries, func(a, b record.Entry) int {
		return cmp.Or(cmp.Compare(a.Used, b.Used), cmp.Compare(b.Depth, a.Depth), cmp.Compare(a.Seq, b.Seq))
	})
	var refused []int
	free := func(e *record.Entry) { t.segments.free(location(valueOf(e).A), int64(e.Size)) }
	for i := range entries {
		e := &entries[i]
		var restored bool
		there := t.scan.unlessForgotten(e.Key, func() bool {
			_, restored = t.ledger.Restore(ledger.Entry{Key: e.Key, Size: e.Size, Value: valueOf(e)}, e.Parent)
			return true
		})
		switch {
		case restored:
			t.count.payload.Add(int64(e.Size))
			t.share.live.Add(held(int64(e.Size), e.Inline))
		case there:
			refused = append(refused, i)
		default: // deleted, and perhaps stored anew, while the scan ran
			free(e)
		}
	}
	var ks []key.Key
	for _, i := range refused {
		ks = append(ks, entries[i].Key)
	}
	if err := t.dropRecords(ctx, ks); err != nil {
		t.log.Warn().Err(err).Int("entries", len(ks)).Msg("records that contradict others are not deleted yet; the next start sees to it")
		return
	}
	for _, i := range refused {
		free(&entries[i])
	}
}

func (t *Tier) emit(entries []record.Entry, emit func([]tier.Record)) {
	out := make([]tier.Record, 0, min(len(entries), emitBatch))
	for i := range entries {
		e := &entries[i]
		if !t.Has(e.Key) {
			continue
		}
		out = append(out, tier.Record{Key: e.Key, Parent: e.Parent, Depth: e.Depth, Tokens: e.Tokens, Size: e.Size, Sum: e.Sum})
		if len(out) == emitBatch {
			emit(out)
			out = out[:0]
		}
	}
	if len(out) > 0 {
		emit(out)
	}
}

// valueOf is what the ledger keeps of an entry.
func valueOf(e *record.Entry) ledger.Value {
	if e.Inline {
		return ledger.Value{A: uint64(inlined), B: e.Sum}
	}
	return ledger.Value{A: uint64(locate(e.Extent, e.Headed)), B: e.Sum}
}
