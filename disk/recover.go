package disk

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// recovery is one Recover.
type recovery struct {
	t          *instance
	entries    []database.Entry // that are whole
	damaged    []key.Key        // of records that are damaged
	overlapped []key.Key        // of records whose extents others have, or that point nowhere
	orphans    []*segment       // without an entry
	refused    int              // entries that were evicted for Options.Entries
	buried     bool             // extents of these have headers yet
}

// emitBatch is how many records Recover hands over at once.
const emitBatch = 4096

// Recover reads the records that an earlier process left, never a payload,
// and hands the entries that are whole to emit, all of them resident by then.
// It holds about 120 bytes an entry while it runs. Run must be running.
//
// Until it is over, Put writes to new segments only, or is ErrOff, and Get and Contains
// ask the database for keys that the ledger does not know. A scan ended by ctx, by a
// device in trouble leaves the tier in that state; call Recover again. A database
// that cannot be read to its end ends Run: the next Open moves it aside.
func (t *Tier) Recover(ctx context.Context, emit func([]tier.Record)) error {
	return t.failed("recover", t.now.Load().recover(ctx, emit))
}

func (t *instance) recover(ctx context.Context, emit func([]tier.Record)) error {
	if err := t.usable(ctx); err != nil {
		return err
	}
	if !t.scan.active.Load() {
		t.surveyed.Store(true) // there are none
		t.db.Succeeded()
		return nil
	}
	r := &recovery{t: t}
	err := r.read(ctx)
	if err == nil {
		err = r.keep(ctx)
	}
	if err == nil {
		r.end(ctx, emit)
	}
	return err
}

// read collects the records of the old segments, and compares their headers with
// them where a survey is due.
func (r *recovery) read(ctx context.Context) (err error) {
	t := r.t
	r.entries, r.damaged, err = r.readRecords(ctx)
	if err != nil {
		// A commit that is failing just now says so later than a reader does.
		transient := ctx.Err() != nil || errors.Is(err, metadata.ErrBroken) || metadata.IsEnvironment(err)
		if !transient && t.awaitCommit(ctx) == nil {
			t.db.Damaged(err)
		}
		return err
	}
	r.entries, r.overlapped = resolve(r.entries, t.segments.oldSize)
	rebuild := t.rebuilds || len(r.damaged) > 0
	if !rebuild && !t.unclean && !r.buried && t.scan.deletions() == 0 {
		t.surveyed.Store(true)
		return nil
	}
	r.entries, err = r.compare(ctx, r.entries, rebuild)
	return err
}

// keep takes the entries into the ledger and their extents into the segments,
// and deletes the records of the others.
func (r *recovery) keep(ctx context.Context) error {
	t := r.t
	var evicted []key.Key
	r.entries, evicted = r.shrink(r.entries)
	t.scan.damaged.Store(uint64(len(r.damaged)))
	t.scan.lost.Store(uint64(len(r.damaged)+len(r.overlapped)) + t.rebuilding.dropped.Load())
	t.scan.evicted.Store(uint64(len(evicted) + r.refused))
	if err := t.dropRecords(ctx, without(slices.Concat(r.damaged, r.overlapped, evicted), r.entries)); err != nil {
		return err
	}
	var lost []key.Key
	r.orphans, lost = r.reserve(r.entries)
	r.entries = slices.DeleteFunc(r.entries, func(e database.Entry) bool { return slices.Contains(lost, e.Key) })
	r.restore(ctx, r.entries, lost)
	t.scan.evicted.Store(uint64(len(evicted) + r.refused))
	return nil
}

// end puts the headers in order, hands the entries over, and removes the
// segments that have none.
func (r *recovery) end(ctx context.Context, emit func([]tier.Record)) {
	t := r.t
	err := t.tombs.flush(ctx)
	if err == nil {
		err = r.unbury(ctx)
	}
	if err != nil {
		t.surveyed.Store(false)
		t.log.Warn().Err(err).Msg("headers are not all in order; the next start sees to it")
	}
	for _, k := range t.scan.end() {
		t.ledger.Touch([]key.Key{k}) // one by one: the last of them is the youngest
	}
	t.rebuilding.total.Store(0)
	t.db.Succeeded()
	if n := t.scan.newer.Load(); n > 0 {
		t.log.Warn().Uint64("records", n).Msg("records of a newer program are passed over; their room is given to others")
	}
	if lost := len(r.damaged) + len(r.overlapped); lost > 0 {
		t.log.Warn().Int("chunks", lost).Int("damaged_records", len(r.damaged)).Int("out_of_place", len(r.overlapped)).
			Msg("chunks of the disk tier are lost: their records are damaged, or no file has their bytes any more, as after a segment was cut")
	}
	if r.refused > 0 {
		t.log.Warn().Int("evicted", r.refused).Int("most", t.o.Entries).
			Msg("the disk tier had more chunks than there is memory for: those used longest ago were evicted")
	}
	t.log.Info().Int("entries", t.ledger.Stats().Entries).Int("lost", len(r.damaged)+len(r.overlapped)).Uint64("evicted", t.scan.evicted.Load()).
		Uint64("newer", t.scan.newer.Load()).Int("orphan_segments", len(r.orphans)).Msg("recovered")
	r.emit(r.entries, emit)
	// All entries are recovered, also where an empty file cannot be removed.
	for _, v := range t.volumes {
		mine := slices.DeleteFunc(slices.Clone(r.orphans), func(g *segment) bool { return g.volume != v })
		if err := t.call(ctx, v.dev, func() error { return t.segments.unlink(mine) }, nil); err != nil {
			t.log.Warn().Err(err).Str("path", v.dir).Msg("empty segments stay; they count until the next start")
		}
	}
}

// readRecords collects the records of earlier processes, and the keys of those
// that are damaged. Records of a newer program are passed over: Open refuses
// a format that this one must not touch, so those are single ones, left for
// that program to find. Their room is given to others.
func (r *recovery) readRecords(ctx context.Context) (entries []database.Entry, lost []key.Key, err error) {
	t := r.t
	t.scan.records.Store(0)
	t.scan.newer.Store(0)
	first := t.commits.First
	err = t.db.Scan(ctx, func(k, v []byte) error {
		t.scan.records.Add(1)
		var e database.Entry
		switch err := database.DecodeEntry(&e, k, v); {
		case errors.Is(err, database.ErrNewer):
			t.scan.newer.Add(1)
		case err != nil:
			if k, ok := database.ParseEntryKey(k); ok {
				lost = append(lost, k)
			}
		case e.Seq < first: // the others are in the ledger
			if entries = append(entries, e); t.o.Entries > 0 && len(entries) > t.o.Entries+t.o.Entries/4+maxRemovals {
				entries, err = r.cut(ctx, entries)
				return err
			}
		}
		return nil
	})
	return entries, lost, err
}

// dropRecords deletes the records of those of ks that no Put has stored anew, and
// returns when that is committed: only then may their segments go.
func (t *instance) dropRecords(ctx context.Context, ks []key.Key) error {
	for part := range slices.Chunk(ks, maxRemovals) {
		_, err := t.remove(ctx, func(gone *removal) {
			for _, k := range part {
				if _, state := t.ledger.Find(k); state == ledger.Absent {
					gone.keys = append(gone.keys, k)
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// without returns those of ks that are no entry's: a survey may have found
// another payload of a key.
func without(ks []key.Key, entries []database.Entry) []key.Key {
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
// entries from the list and returns them. lost are entries that overlap others, which
// is a broken invariant: they were resolved.
func (r *recovery) reserve(entries []database.Entry) (orphans []*segment, lost []key.Key) {
	t := r.t
	for _, g := range t.segments.all() {
		if t.segments.oldSize(g.number) == 0 && g.size > 0 {
			continue // made by this process
		}
		free := arena.NewAllocator(g.size)
		for _, e := range entriesIn(entries, g.number) {
			if !free.Reserve(e.Extent.Offset, int64(e.Extent.Bytes)) {
				base.Broken("disk: entries of segment %d overlap after they were resolved", g.number)
				lost = append(lost, e.Key)
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
	return orphans, lost
}

// restore fills the ledger, least recently used first, without those that would be
// too many. An entry that the ledger refuses, because it contradicts the others, loses
// its record, and only then its extent, and so do those. Lost ones have no extent.
func (r *recovery) restore(ctx context.Context, entries []database.Entry, lost []key.Key) {
	t := r.t
	slices.SortFunc(entries, func(a, b database.Entry) int { return byUse(&a, &b) })
	inline := 0
	var refused []int // by index; first those that would be too many
	for i := range min(max(0, len(entries)+t.headroom.excessEntries(0, false)), len(entries)) {
		refused = append(refused, i)
	}
	r.refused += len(refused)
	free := func(e *database.Entry) { t.segments.free(location(valueOf(e).A), int64(e.Size)) }
	for i := len(refused); i < len(entries); i++ {
		e := &entries[i]
		r.makeRoom(ctx)
		var restored bool
		there := t.scan.unlessForgotten(e.Key, func() bool {
			if _, state := t.ledger.Find(e.Key); state == ledger.Absent {
				t.o.Ages.Found(e.Key, expiryOf(e)) // before the tier answers for it
			}
			_, restored = t.ledger.Restore(ledger.Entry{Key: e.Key, Size: e.Size, Value: valueOf(e)}, e.Parent)
			return true
		})
		switch {
		case restored:
			t.payload.Add(int64(e.Size))
			t.budget.live.Add(metadata.HeldBytes(int64(e.Size), e.Inline))
			if e.Inline {
				inline++
			}
		case there:
			refused = append(refused, i)
		default: // deleted, and perhaps stored anew, while the scan ran
			free(e)
		}
	}
	t.db.FoundInline(inline)
	ks := lost
	for _, i := range refused {
		ks = append(ks, entries[i].Key)
	}
	if err := t.dropRecords(ctx, ks); err != nil {
		t.log.Warn().Err(err).Int("entries", len(ks)).Msg("records that contradict others, or are too many, are not deleted yet; the next start sees to it")
		return
	}
	for _, i := range refused {
		free(&entries[i])
	}
}

func (r *recovery) emit(entries []database.Entry, emit func([]tier.Record)) {
	out := make([]tier.Record, 0, min(len(entries), emitBatch))
	for part := range slices.Chunk(entries, emitBatch) {
		out = out[:0]
		for i := range part {
			if r.t.has(part[i].Key) {
				out = append(out, recordOf(&part[i]))
			}
		}
		if len(out) > 0 {
			emit(out)
		}
	}
}

// expiryOf is what a record says of the age of its entry.
func expiryOf(e *database.Entry) stale.Expiry {
	return stale.Expiry{Stored: e.Created, Expires: e.Expires}
}

// valueOf is the value of an entry in the ledger: its packed location, or
// inlined, and its checksum.
func valueOf(e *database.Entry) ledger.Value {
	if e.Inline {
		return ledger.Value{A: uint64(inlined), B: e.Sum}
	}
	return ledger.Value{A: uint64(locate(e.Extent)), B: e.Sum}
}

func recordOf(e *database.Entry) tier.Record {
	return tier.Record{Key: e.Key, Parent: e.Parent, Depth: e.Depth, Tokens: e.Tokens, Size: e.Size, Sum: e.Sum}
}

// Records implements tier.Recoverer.
func (t *Tier) Records(ctx context.Context, ks []key.Key) ([]tier.Record, error) {
	recs, err := t.now.Load().records(ctx, ks)
	return recs, t.failed("records", err)
}

func (t *instance) records(ctx context.Context, ks []key.Key) ([]tier.Record, error) {
	if err := t.usable(ctx); err != nil {
		return nil, err
	}
	return ask(ctx, t, func() (recs []tier.Record, err error) {
		err = t.db.Entries(ks, func(i int, e *database.Entry) {
			if t.has(ks[i]) {
				recs = append(recs, recordOf(e))
			}
		})
		return recs, err
	})
}

// resolve sorts entries by place and takes out those that point outside their
// segment, and of two that overlap the one with the lower sequence number: a
// crash came between the reuse of its extent and its deletion. It works in
// place.
func resolve(entries []database.Entry, sizeOf func(segment uint32) int64) (kept []database.Entry, lost []key.Key) {
	slices.SortFunc(entries, func(a, b database.Entry) int {
		return cmp.Or(cmp.Compare(a.Extent.Segment, b.Extent.Segment), cmp.Compare(a.Extent.Offset, b.Extent.Offset), cmp.Compare(b.Seq, a.Seq))
	})
	var segment uint32
	var size int64
	kept = entries[:0]
	for i := range entries {
		e := entries[i]
		if e.Inline {
			if e.Size == 0 || e.Size > metadata.MaxInlineBytes || e.Extent != (database.Extent{}) {
				lost = append(lost, e.Key)
			} else {
				kept = append(kept, e)
			}
			continue
		}
		if e.Extent.Segment != segment {
			segment = e.Extent.Segment
			size = sizeOf(segment)
		}
		if !inBounds(&e, size) {
			lost = append(lost, e.Key)
			continue
		}
		// The kept entries do not overlap, and e starts at or behind the start
		// of the last of them, so that is the only one it can meet.
		if n := len(kept) - 1; n >= 0 && kept[n].Extent.Segment == segment && kept[n].Extent.End() > e.Extent.Offset {
			if kept[n].Seq > e.Seq {
				lost = append(lost, e.Key)
				continue
			}
			lost = append(lost, kept[n].Key)
			kept = kept[:n]
		}
		kept = append(kept, e)
	}
	return kept, lost
}

func inBounds(e *database.Entry, size int64) bool {
	x := e.Extent
	return e.Size > 0 && int64(x.Bytes) == extentBytes(int64(e.Size)) &&
		x.Offset >= 0 && x.Offset%alignBytes == 0 && x.Offset <= size-int64(x.Bytes)
}

// shrink takes out whole segments, the ones used longest ago, until the files
// fit into a capacity that is smaller than it was. A database that is beyond its
// reserve does not count: it costs nothing that is stored while the tier runs
// either.
func (r *recovery) shrink(entries []database.Entry) (kept []database.Entry, evicted []key.Key) {
	t := r.t
	over := t.segments.usage().files - (t.o.CapacityBytes - t.o.MetaReserveBytes)
	if over <= 0 {
		return entries, nil
	}
	used, n := make(map[uint32]int64), make(map[uint32]int64) // of the entries of a segment: the sum, and how many
	for i := range entries {
		used[entries[i].Extent.Segment] += int64(entries[i].Used)
		n[entries[i].Extent.Segment]++
	}
	mean := func(g *segment) int64 { return used[g.number] / max(n[g.number], 1) } // of empty ones 0
	order := t.segments.all()
	slices.SortFunc(order, func(a, b *segment) int {
		return cmp.Or(cmp.Compare(mean(a), mean(b)), cmp.Compare(a.number, b.number))
	})
	leave := make(map[uint32]bool)
	for _, g := range order {
		if over > 0 && t.segments.oldSize(g.number) > 0 {
			leave[g.number] = true
			over -= g.blocks
		}
	}
	kept = slices.DeleteFunc(entries, func(e database.Entry) bool {
		if leave[e.Extent.Segment] {
			evicted = append(evicted, e.Key)
		}
		return leave[e.Extent.Segment]
	})
	return kept, evicted
}

// adoption writes the records of extents that are there.
type adoption struct {
	entries []database.Entry
	done    chan error
}

func (a *adoption) Apply(b *metadata.Batch) (err error) {
	for i := 0; i < len(a.entries) && err == nil; i++ {
		err = b.Adopt(&a.entries[i])
	}
	return err
}

func (a *adoption) Committed(err error) { a.done <- err }

// adoptRecords writes the records of entries that were found by their headers,
// unless they were deleted or stored anew meanwhile.
func (t *instance) adoptRecords(ctx context.Context, found []database.Entry) error {
	for part := range slices.Chunk(found, maxRemovals) {
		adopt := &adoption{done: make(chan error, 1)}
		err := t.commits.AddWith(func() metadata.Change {
			for _, e := range part {
				if _, state := t.ledger.Find(e.Key); state == ledger.Absent && !t.scan.isDeleted(e.Key) {
					adopt.entries = append(adopt.entries, e)
				}
			}
			return adopt
		})
		if err == nil {
			err = t.wait(ctx, adopt.done, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unbury ends what a survey was for: all headers say what the database says,
// and survive a power failure where it is to be relied on that they do. It removes
// the notes of deletions, unless a path was not surveyed.
func (r *recovery) unbury(ctx context.Context) error {
	t := r.t
	noted, err := t.set.Meta.Exists(deletionsName)
	if err != nil || !noted && !t.rebuilds {
		return err
	}
	end, err := t.deletionLog.sync()
	if err != nil {
		return err
	}
	if err := newSync(t).sync(ctx); err != nil || !t.surveyed.Load() {
		return err
	}
	if gone, err := t.deletionLog.remove(end); err != nil || !gone {
		return err
	}
	if t.rebuilds {
		if err := t.set.Meta.Remove(metadata.RebuildName); err != nil {
			return err
		}
		t.rebuilds = false
	}
	return t.set.Meta.Sync()
}

// scan is the state of the recovery.
type scan struct {
	active  atomic.Bool // there may be records that the ledger does not have yet
	records atomic.Uint64
	lost    atomic.Uint64 // records dropped: damaged, pointing nowhere, overwritten
	damaged atomic.Uint64 // lost records that were damaged
	newer   atomic.Uint64 // records of a newer program, passed over
	evicted atomic.Uint64 // entries dropped because the capacity is smaller now
	mu      struct {
		sync.Mutex
		deleted map[key.Key]struct{} // while active: the scan must not bring them back
		stored  []key.Key            // while active, in order: they are younger than the entries it brings
	}
}

// addStored remembers that k was stored while the scan went on.
func (s *scan) addStored(k key.Key) {
	if !s.active.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stored = append(s.mu.stored, k)
}

// end ends the scan, and returns the keys stored while it went on.
func (s *scan) end() (stored []key.Key) {
	s.active.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	stored = s.mu.stored
	s.mu.deleted, s.mu.stored = nil, nil
	return stored
}

func (s *scan) addDeleted(k key.Key) {
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

func (s *scan) isDeleted(k key.Key) bool {
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

// cut deletes the records of the entries used longest ago beyond Options.Entries, so
// that recovery takes no more memory for more records. Their headers are left to the
// survey.
func (r *recovery) cut(ctx context.Context, entries []database.Entry) ([]database.Entry, error) {
	most := r.t.o.Entries
	slices.SortFunc(entries, func(a, b database.Entry) int { return byUse(&b, &a) })
	var ks []key.Key
	for i := range entries[most:] {
		e := &entries[most+i]
		ks = append(ks, e.Key)
		r.buried = r.buried || !e.Inline
	}
	r.refused += len(ks)
	return entries[:most], r.t.dropRecords(ctx, ks)
}

// byUse compares by last use, oldest first. Of those used in the same second the tail
// of a chain is older than its head.
func byUse(a, b *database.Entry) int {
	return cmp.Or(cmp.Compare(a.Used, b.Used), cmp.Compare(b.Depth, a.Depth), cmp.Compare(a.Seq, b.Seq))
}

// makeRoom evicts where puts under way have filled the ledger, or holes have. If it
// cannot, the ledger refuses the entry that comes next.
func (r *recovery) makeRoom(ctx context.Context) {
	t := r.t
	if ledger.FreeEntries(t.ledger) >= 2 { // the entry, and a hole for its parent
		return
	}
	v := reclaim{t: t, restores: true}
	err := v.entries(ctx, 1)
	if r.refused += len(v.gone); err != nil {
		t.trouble.Warn().Err(err).Msg("entries beyond the most that there may be cannot be evicted")
	}
}
