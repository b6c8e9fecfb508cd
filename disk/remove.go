package disk

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// maxRemovals is how many entries leave in one change.
const maxRemovals = 1024

// leastExtra is how many entries may go at least so that an extent fits in one piece: a
// few that are smaller than it, such as the windows of a hybrid model among its full
// chunks, say nothing of the next ones.
const leastExtra = 64

// removal deletes records, and frees their extents once that is committed.
type removal struct {
	t       *Tier
	keys    []key.Key
	entries []ledger.Entry // of those keys that were in the ledger
	marks   []uint64       // numbers of the deletions, by key, while there may be headers of them that are not known
	done    chan error     // nil once told
}

func (t *Tier) newRemoval() *removal { return &removal{t: t, done: make(chan error, 1)} }

// take adds an entry that has just left the ledger.
func (r *removal) take(e ledger.Entry) {
	r.t.ledger.Free(e.ID) // its extent waits for the commit here
	r.t.count.payload.Add(-int64(e.Size))
	r.t.share.live.Add(-heldFor(e))
	r.keys = append(r.keys, e.Key)
	r.entries = append(r.entries, e)
}

func (r *removal) Apply(b *metadata.Batch) error {
	n := 0
	for i, k := range r.keys {
		inline := true // unknown: deleting a payload that is not there does no harm
		if n < len(r.entries) && r.entries[n].Key == k {
			inline = location(r.entries[n].Value.A).inline()
			n++
		}
		if err := b.Delete(k, inline); err != nil {
			return err
		}
		if i < len(r.marks) {
			b.MarkDeleted(k, r.marks[i])
		}
	}
	return nil
}

// Committed keeps the extents until the deletion has been committed after
// all: until then a restart would bring the entries back.
func (r *removal) Committed(err error) {
	if err != nil {
		r.t.commits.Requeue(r)
	} else {
		r.t.deleting.done(r.keys)
		for _, e := range r.entries {
			r.t.segments.free(location(e.Value.A), int64(e.Size))
		}
	}
	if r.done != nil {
		r.done <- err
		r.done = nil
	}
}

// Delete forgets ks; absent ones are passed over. It returns when the deletion
// survives a kill of the process, also one that another call began. A Put that
// is still writing, perhaps after its caller left, is waited for.
func (t *Tier) Delete(ctx context.Context, ks []key.Key) error {
	for len(ks) > 0 {
		n := min(len(ks), maxRemovals)
		if err := (deletion{t}).delete(ctx, ks[:n]); err != nil {
			return fmt.Errorf("disk: delete: %w", err)
		}
		ks = ks[n:]
	}
	return nil
}

func (x deletion) delete(ctx context.Context, ks []key.Key) error {
	t := x.t
	if err := t.usable(ctx); err != nil {
		return err
	}
	if err := x.awaitPuts(ctx, ks); err != nil {
		return err
	}
	if t.scan.active.Load() { // there may be headers of theirs that are not known
		seq := t.segments.seq.Add(1)
		if err := t.call(ctx, t.metaDev, func() error { return t.deletionLog.append(ks, seq) }, nil); err != nil {
			return err
		}
	}
	r := t.newRemoval()
	done := r.done
	if err := t.commits.AddWith(func() metadata.Change { return t.takeOut(r, ks).orNothing() }); err != nil {
		return err
	}
	if len(r.keys) > 0 {
		if err := t.wait(ctx, done, nil); err != nil {
			return err
		}
	}
	if err := x.awaitDeletions(ctx, ks); err != nil {
		return err
	}
	if err := t.tombs.flush(ctx); err != nil && !blockio.IsFault(err) && !errors.Is(err, tier.ErrOff) { // else it is tried again, and a flush says so
		return err
	}
	return nil
}

// takeOut takes ks out of the ledger and into r. During recovery it notes those
// the scan has not brought yet. It returns r.
func (t *Tier) takeOut(r *removal, ks []key.Key) *removal {
	for _, k := range ks {
		t.scan.addDeleted(k)
		before := len(r.keys)
		if e, ok := t.ledger.Remove(k); ok {
			r.take(e)
		} else if _, state := t.ledger.Find(k); state == ledger.Absent && t.scan.active.Load() {
			r.keys = append(r.keys, k)
		}
		if len(r.keys) > before && t.scan.active.Load() {
			r.marks = append(r.marks, t.segments.seq.Add(1))
		}
	}
	return r
}

// orNothing is r, about to be queued, or no change at all when nothing is left
// to remove. It is called once, at the end: the keys being deleted are counted then.
func (r *removal) orNothing() metadata.Change {
	if len(r.keys) == 0 {
		return nil
	}
	r.t.deleting.add(r.keys)
	return r
}

// removeIf deletes k if it still is what f says, without waiting, and reports
// whether it was.
func (t *Tier) removeIf(k key.Key, f found) (dropped bool) {
	r := t.newRemoval()
	_ = t.commits.AddWith(func() metadata.Change {
		e, state := t.ledger.Find(k)
		same := state == ledger.Resident && e.Value == ledger.Value{A: uint64(f.loc), B: f.sum}
		if !same && (state != ledger.Absent || !t.scan.active.Load()) {
			return nil
		}
		dropped = true
		return t.takeOut(r, []key.Key{k}).orNothing()
	}) // closed: the checksum will find it again
	return dropped
}

// eviction makes room: it removes entries that the ledger chooses, and segments.
// It keeps nothing between two calls.
type eviction struct {
	t        *Tier
	restores bool // on behalf of recovery, which is the only one to evict before it has ended
}

// Trim first evicts entries over a quota, and those beyond the watermarks of
// Options.Entries. Then it evicts by the tier's policy until a payload of n bytes fits under the high watermark; when it has to
// start it goes on to the low one. It then evicts one at a time until n bytes
// fit in one piece, if a payload can be that large, up to four times n and leastExtra entries. With
// n = 0 it also empties a segment where others have filled the file system,
// unless another Trim is at that. It appends the evicted keys to out, also when
// it fails. While recovery runs no entry is evicted, and while the database takes
// no deletions Trim is an error: the evicted entries would be lost for no room.
// Room is made by one Trim at a time, the others wait for it.
func (t *Tier) Trim(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	err := t.usable(ctx)
	if err == nil {
		err = t.db.Works()
	}
	if n == 0 && err == nil {
		out, err = eviction{t: t}.giveBack(ctx, out)
	}
	if err == nil {
		out, err = eviction{t: t}.trim(ctx, n, out)
	}
	if err != nil {
		err = fmt.Errorf("disk: trim for %d bytes: %w", n, err)
	}
	return out, err
}

func (v eviction) trim(ctx context.Context, n int64, out []key.Key) (gone []key.Key, err error) {
	t := v.t
	select {
	case t.trimming <- struct{}{}:
		defer func() { <-t.trimming }()
	case <-ctx.Done():
		return out, ctx.Err()
	}
	before := len(out)
	defer func() {
		count := &t.count.evictedRoom
		if n == 0 {
			count = &t.count.evictedAhead
		}
		count.Add(uint64(len(gone) - before))
	}()
	if n > 0 && extentBytes(n) > t.o.CapacityBytes-t.o.MetaReserveBytes {
		return out, tier.ErrTooLarge
	}
	if out, err = v.trimQuotas(ctx, out); err != nil {
		return out, err
	}
	if out, err = v.trimEntries(ctx, n, out); err != nil {
		return out, err
	}
	if out, err = v.relieve(ctx, v.heldRoom(n), out); err != nil {
		return out, err
	}
	if n <= t.o.InlineMax {
		n = 0
	} else {
		n = extentBytes(n)
	}
	return v.fit(ctx, n, out)
}

// trimQuotas evicts entries until no quota is exceeded, or none can be evicted.
func (v eviction) trimQuotas(ctx context.Context, out []key.Key) ([]key.Key, error) {
	t := v.t
	for freed := int64(1); freed > 0 && t.ledger.OverQuota(); {
		var err error
		if out, freed, err = v.evict(ctx, math.MaxInt64, out, heldFor, t.ledger.EvictOver); err != nil {
			return out, err
		}
	}
	return out, nil
}

// fit evicts until an extent of n bytes fits under a watermark and, if one can
// be that large, in one piece.
func (v eviction) fit(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	t := v.t
	onePiece := n <= t.o.SegmentBytes // no extent is larger
	extra, least := 4*n, leastExtra   // against fragmentation
	for started := false; ; started = true {
		want := t.space.excess(n, started)
		scattered := want <= 0 // enough bytes, but perhaps in pieces
		switch {
		case scattered && (!onePiece || t.space.fits(n)):
			return out, nil
		case scattered && extra <= 0 && least <= 0:
			return out, tier.ErrNoSpace
		case scattered:
			want = 1 // one more victim may join two pieces
		}
		var freed int64
		var err error
		known := len(out)
		out, freed, err = v.evict(ctx, want, out, extentOf, t.ledger.Evict)
		if err == nil && len(out) == known {
			err = tier.ErrNoSpace
		}
		if err != nil {
			return out, err
		}
		if scattered {
			extra -= freed
			least -= len(out) - known
		}
	}
}

// evict removes victims of at least want bytes, as gain counts them, one change
// full at most, and returns when their extents are free.
func (v eviction) evict(ctx context.Context, want int64, out []key.Key, gain func(ledger.Entry) int64, victim func() (ledger.Entry, bool)) ([]key.Key, int64, error) {
	t := v.t
	if t.scan.active.Load() && !v.restores {
		return out, 0, nil
	}
	if err := t.db.Works(); err != nil {
		return out, 0, err
	}
	var freed int64
	r := t.newRemoval()
	done := r.done
	err := t.commits.AddWith(func() metadata.Change {
		for freed < want && len(r.keys) < maxRemovals {
			e, ok := victim()
			if !ok {
				break
			}
			r.take(e)
			freed += gain(e)
		}
		return r.orNothing()
	})
	if err != nil || len(r.keys) == 0 {
		return out, 0, err
	}
	out = append(out, r.keys...)
	if err = t.wait(ctx, done, nil); err == nil {
		err = t.tombs.flush(ctx)
	}
	return out, freed, err
}

// Unsettled implements tier.Unsettled.
func (t *Tier) Unsettled(k key.Key) bool {
	if t.scan.active.Load() { // one that was opened again says so before the stack knows
		return true
	}
	return t.fills.of(k) != nil || t.deleting.has(k)
}

// Left implements tier.Unsettled.
func (t *Tier) Left(id key.SpaceID) []key.Key {
	ks := t.ledger.Keys(id)
	t.deleting.still(func() { ks = t.deleting.in(id, ks) })
	return ks
}
