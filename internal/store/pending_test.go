package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// landing is a disk on which a write of one key may still land, until that is
// deleted.
type landing struct {
	*tiertest.Memory
	key  key.Key
	err  error // of deletions
	asks int   // deletions
}

func (l *landing) IsPending(k key.Key) bool { return k == l.key }

func (l *landing) Left(id key.SpaceID) []key.Key {
	if l.key.Space != id {
		return nil
	}
	return []key.Key{l.key}
}

func (l *landing) Delete(ctx context.Context, ks []key.Key) error {
	l.asks++
	if l.err != nil {
		return l.err
	}
	return l.Memory.Delete(ctx, ks)
}

// A disk that does not have a key is not asked to delete it, unless it may come
// to have it: then the deletion is done only when the disk says so.
func TestDeleteOfWhatMayLand(t *testing.T) {
	c := tiertest.Chain(1, 2)
	ks := tiertest.Keys(c, 0, 2)
	d := &landing{Memory: tiertest.NewMemory("disk", 64*mib), key: ks[0], err: errors.New("broken")}
	r := newRig(t, options{planner: tier.WithBreaker(d, tier.BreakerOptions{})})
	if _, err := r.Remover.Delete(t.Context(), ks[1:]); err != nil || d.asks != 0 {
		t.Errorf("delete of what is not there: %v; the disk was asked %d times", err, d.asks)
	}
	if _, err := r.Remover.Delete(t.Context(), ks[:1]); !errors.Is(err, d.err) {
		t.Errorf("delete of what may land: %v", err)
	}
	d.err = nil
	if _, err := r.Remover.Delete(t.Context(), ks[:1]); err != nil || d.asks != 2 {
		t.Errorf("delete of what may land: %v; the disk was asked %d times", err, d.asks)
	}
}

// moving is a disk on which something moves just while it is looked at.
type moving struct {
	*tiertest.Memory
	key     key.Key
	looked  bool
	before  bool // under way until the first look
	deleted []key.Key
}

func (m *moving) Has(k key.Key) bool {
	if k == m.key {
		m.looked = true
	}
	return m.Memory.Has(k)
}

func (m *moving) IsPending(k key.Key) bool { return k == m.key && m.looked != m.before }

func (m *moving) Left(key.SpaceID) []key.Key { return nil }

func (m *moving) Delete(ctx context.Context, ks []key.Key) error {
	m.deleted = append(m.deleted, ks...)
	return m.Memory.Delete(ctx, ks)
}

// A write that lands just before the disk is asked for the chunk, and an eviction
// that begins just then, are not taken for an absent chunk.
func TestDeleteOfWhatMoves(t *testing.T) {
	ks := tiertest.Keys(tiertest.Chain(1, 1), 0, 1)
	for name, before := range map[string]bool{"lands": true, "leaves": false} {
		t.Run(name, func(t *testing.T) {
			d := &moving{Memory: tiertest.NewMemory("disk", 64*mib), key: ks[0], before: before}
			r := newRig(t, options{planner: d})
			d.looked = false
			if _, err := r.Remover.Delete(t.Context(), ks); err != nil || !slices.Equal(d.deleted, ks) {
				t.Errorf("%v; the disk is asked to delete %v", err, d.deleted)
			}
		})
	}
}

// What a space has below and the index does not know goes with the space: or it
// would be back at the next start.
func TestDeleteSpaceOfWhatMayLand(t *testing.T) {
	c := tiertest.Chain(1, 1)
	ks := tiertest.Keys(c, 0, 1)
	d := &landing{Memory: tiertest.NewMemory("disk", 64*mib), key: ks[0], err: errors.New("broken")}
	r := newRig(t, options{planner: tier.WithBreaker(d, tier.BreakerOptions{})})
	if _, err := r.Remover.DeleteSpace(t.Context(), tiertest.Chain(2, 1).Space); err != nil || d.asks != 0 {
		t.Errorf("of another space: %v; the disk was asked %d times", err, d.asks)
	}
	if _, err := r.Remover.DeleteSpace(t.Context(), c.Space); !errors.Is(err, d.err) {
		t.Errorf("of what may land: %v", err)
	}
	d.err = nil
	if _, err := r.Remover.DeleteSpace(t.Context(), c.Space); err != nil || d.asks != 2 {
		t.Errorf("of what may land: %v; the disk was asked %d times", err, d.asks)
	}
}
