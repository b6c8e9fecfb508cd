package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// maxRemovals is how many entries leave in one change.
const maxRemovals = 1024

// removal deletes records, and frees their extents once that is committed.
type removal struct {
	t       *instance
	keys    []key.Key
	entries []ledger.Entry // of those keys that were in the ledger
	done    chan error     // nil once told
}

func (t *instance) newRemoval() *removal { return &removal{t: t, done: make(chan error, 1)} }

// remove commits a removal of what collect takes while no other change is queued, and
// returns when that survives a kill of the process. Beside an error the removal goes on
// by itself.
func (t *instance) remove(ctx context.Context, collect func(*removal)) (*removal, error) {
	r := t.newRemoval()
	done := r.done
	err := t.commits.AddWith(func() metadata.Change {
		collect(r)
		return r.orNothing()
	})
	if err == nil && len(r.keys) > 0 {
		err = t.wait(ctx, done, nil)
	}
	return r, err
}

// awaitCommit returns when all changes that were queued before have been committed, or
// have failed: then the error says over what.
func (t *instance) awaitCommit(ctx context.Context) error {
	nothing := t.newRemoval()
	done := nothing.done
	if err := t.commits.Add(nothing); err != nil {
		return err
	}
	return t.wait(ctx, done, nil)
}

// take adds an entry that has just left the ledger.
func (r *removal) take(e ledger.Entry) {
	r.t.ledger.Free(e.ID) // its extent waits for the commit here
	r.t.payload.Add(-int64(e.Size))
	r.t.budget.live.Add(-heldFor(e))
	r.keys = append(r.keys, e.Key)
	r.entries = append(r.entries, e)
}

func (r *removal) Apply(b *metadata.Batch) error {
	n := 0
	for _, k := range r.keys {
		inline := true // unknown: deleting a payload that is not there does no harm
		if n < len(r.entries) && r.entries[n].Key == k {
			if inline = location(r.entries[n].Value.A).inline(); inline {
				b.Inline--
			}
			n++
		}
		if err := b.Delete(k, inline); err != nil {
			return err
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
	i := t.now.Load()
	for part := range slices.Chunk(ks, maxRemovals) {
		if err := i.delete(ctx, part); err != nil {
			return t.failed("delete", err)
		}
	}
	return nil
}

func (t *instance) delete(ctx context.Context, ks []key.Key) error {
	if err := t.usable(ctx); err != nil {
		return err
	}
	// A Put that its caller has given up becomes resident when the device has woken up.
	if err := t.fills.wait(ctx, ks, t.ended); err != nil {
		return fmt.Errorf("it is still being written: %w", err)
	}
	scanning := t.scan.active.Load()
	var seq uint64 // above those of all headers of theirs
	_, err := t.remove(ctx, func(r *removal) {
		t.takeOut(r, ks)
		seq = t.segments.seq.Add(1)
	})
	if err == nil {
		err = t.awaitDeletions(ctx, ks)
	}
	if err != nil {
		return err
	}
	err = t.tombs.flush(ctx)
	late := blockio.IsFault(err) || errors.Is(err, tier.ErrOff) // they are written again, and a Sync says so
	if err != nil && !late {
		return err
	}
	// A header of ks may be unknown, or may still say that a chunk is there: also the header
	// of a key that left the ledger before, for another reason.
	if scanning || late {
		return t.deletionLog.append(ks, seq)
	}
	return nil
}

// takeOut takes ks out of the ledger and into r. During recovery it notes those
// the scan has not brought yet.
func (t *instance) takeOut(r *removal, ks []key.Key) {
	for _, k := range ks {
		t.scan.addDeleted(k)
		if e, ok := t.ledger.Remove(k); ok {
			r.take(e)
		} else if _, state := t.ledger.Find(k); state == ledger.Absent && t.scan.active.Load() {
			r.keys = append(r.keys, k)
		}
	}
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
func (t *instance) removeIf(k key.Key, f found) (dropped bool) {
	r := t.newRemoval()
	_ = t.commits.AddWith(func() metadata.Change {
		e, state := t.ledger.Find(k)
		same := state == ledger.Resident && e.Value == ledger.Value{A: uint64(f.loc), B: f.sum}
		if !same && (state != ledger.Absent || !t.scan.active.Load()) {
			return nil
		}
		dropped = true
		t.takeOut(r, []key.Key{k})
		return r.orNothing()
	}) // closed: the checksum will find it again
	return dropped
}

// IsPending implements tier.Pending.
func (t *Tier) IsPending(k key.Key) bool {
	i := t.now.Load()
	if i.scan.active.Load() { // one that was opened again says so before the store knows
		return true
	}
	// A tombstone says no key: while one waits, a header may be there of any key that has left.
	return i.fills.of(k) != nil || i.deleting.has(k) || i.segments.unwritten.Load() > 0
}

// Left implements tier.Pending.
func (t *Tier) Left(id key.SpaceID) []key.Key {
	i := t.now.Load()
	ks := i.ledger.Keys(id)
	i.deleting.still(func() { ks = i.deleting.in(id, ks) })
	return ks
}

// deleting counts, by key, the records that are gone from the ledger and still
// to be deleted from the database. Its mutex is a leaf.
type deleting struct {
	commits *metadata.Committer // nil in a tier that was never open

	sync.Mutex
	keys map[key.Key]int
}

// has reports whether k has left the ledger, and is still to be deleted.
func (l *deleting) has(k key.Key) (is bool) {
	l.still(func() { is = l.any([]key.Key{k}) })
	return is
}

// still calls look while no key is on its way out of the ledger.
func (l *deleting) still(look func()) {
	if l.commits == nil {
		look()
		return
	}
	l.commits.Still(look)
}

func (l *deleting) add(ks []key.Key) {
	l.Lock()
	defer l.Unlock()
	if l.keys == nil {
		l.keys = make(map[key.Key]int)
	}
	for _, k := range ks {
		l.keys[k]++
	}
}

func (l *deleting) done(ks []key.Key) {
	l.Lock()
	defer l.Unlock()
	for _, k := range ks {
		if l.keys[k]--; l.keys[k] <= 0 {
			delete(l.keys, k)
		}
	}
}

// in appends the keys of a space.
func (l *deleting) in(id key.SpaceID, ks []key.Key) []key.Key {
	l.Lock()
	defer l.Unlock()
	for k := range l.keys {
		if k.Space == id {
			ks = append(ks, k)
		}
	}
	return ks
}

func (l *deleting) any(ks []key.Key) bool {
	l.Lock()
	defer l.Unlock()
	return slices.ContainsFunc(ks, func(k key.Key) bool { return l.keys[k] > 0 })
}

// awaitRounds bounds how often awaitDeletions waits: other clients may store and delete
// the same keys again and again meanwhile.
const awaitRounds = 16

// awaitDeletions waits for the deletions of ks that others have begun, which a kill of
// the process would undo before they are committed.
func (t *instance) awaitDeletions(ctx context.Context, ks []key.Key) error {
	for range awaitRounds {
		if !t.deleting.any(ks) {
			return nil
		}
		if err := t.awaitCommit(ctx); err != nil { // of theirs, too
			return err
		}
	}
	return fmt.Errorf("the database did not take an earlier deletion yet: %w", tier.ErrOff)
}
