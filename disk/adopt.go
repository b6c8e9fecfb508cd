package disk

import (
	"context"
	"errors"
	"slices"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/record"
	"github.com/kvstored/kvstored/key"
)

// adoption writes the records of entries that were found by their headers,
// unless they were deleted or stored anew meanwhile.
type adoption struct {
	entries []record.Entry
	done    chan error
}

func (a *adoption) Apply(b *metadata.Batch) error {
	for i := range a.entries {
		if err := b.Adopt(&a.entries[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *adoption) Committed(err error) { a.done <- err }

func (r *recovery) adoptRecords(ctx context.Context, found []record.Entry) error {
	t := r.t
	for part := range slices.Chunk(found, maxRemovals) {
		a := &adoption{done: make(chan error, 1)}
		err := t.commits.AddWith(func() metadata.Change {
			for _, e := range part {
				if _, state := t.ledger.Find(e.Key); state == ledger.Absent && !t.scan.isDeleted(e.Key) {
					a.entries = append(a.entries, e)
				}
			}
			if len(a.entries) == 0 {
				return nil
			}
			return a
		})
		if err == nil && len(a.entries) > 0 {
			err = t.wait(ctx, a.done, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unbury ends what a survey was for: all headers say what the database says,
// and survive a power failure where it is to be relied on that they do.
func (r *recovery) unbury(ctx context.Context) error {
	t := r.t
	var list map[key.Key]uint64
	if err := t.call(ctx, t.metaDev, func() (err error) { list, err = t.db.Deletions(); return err }, nil); err != nil {
		return err
	}
	if !t.rebuilds && len(list) == 0 {
		return r.removeDeletionLog()
	}
	if err := newSync(t).sync(ctx); err != nil {
		return err
	}
	g := &unmark{t: t, done: make(chan error, 1)}
	for k, seq := range list {
		if seq < t.commits.First || t.scan.isDeleted(k) {
			g.keys = append(g.keys, k)
		}
	}
	if err := t.commits.Add(g); err != nil {
		return err
	}
	if err := t.wait(ctx, g.done, nil); err != nil {
		return err
	}
	if t.rebuilds && t.surveyed.Load() {
		if err := t.set.Meta.Remove(metadata.RebuildName); err != nil {
			return err
		}
		t.rebuilds = false
	}
	return errors.Join(r.removeDeletionLog(), t.set.Meta.Sync())
}

// removeDeletionLog removes the notes of deletions, unless a path was not surveyed.
func (r *recovery) removeDeletionLog() error {
	t := r.t
	if !t.surveyed.Load() {
		return nil
	}
	return t.deletionLog.remove()
}
