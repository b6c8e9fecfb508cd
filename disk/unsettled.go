package disk

import (
	"context"
	"fmt"
	"sync"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

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
	for _, k := range ks {
		if l.keys[k] > 0 {
			return true
		}
	}
	return false
}

// deletion is one Delete.
type deletion struct{ t *instance }

// awaitPuts waits for the Puts of ks that are under way: one that its caller has
// given up becomes resident when the device has woken up.
func (x deletion) awaitPuts(ctx context.Context, ks []key.Key) error {
	for _, k := range ks {
		if under := x.t.fills.of(k); under != nil {
			if err := awaitFill(ctx, under, x.t.ended); err != nil {
				return fmt.Errorf("it is still being written: %w", err)
			}
		}
	}
	return nil
}

// awaitRounds bounds how often awaitDeletions waits: other clients may store and delete
// the same keys again and again meanwhile.
const awaitRounds = 16

// awaitDeletions waits for the deletions of ks that others have begun, which a kill of
// the process would undo before they are committed.
func (x deletion) awaitDeletions(ctx context.Context, ks []key.Key) error {
	t := x.t
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
