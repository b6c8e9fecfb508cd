package disk

import (
	"context"
	"slices"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/ledger"
)

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
func (r *recovery) adoptRecords(ctx context.Context, found []database.Entry) error {
	t := r.t
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
