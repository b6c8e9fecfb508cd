package stack

import (
	"context"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Forgetting is a deletion that has begun: no lookup finds what it names, although
// the tiers still have it. Call End once, after Delete.
type Forgetting struct {
	remover *remover
	d       *deletion
	end     func()
	known   int
}

// Forget begins to delete the keys. It waits for no tier.
func (s *remover) Forget(ctx context.Context, ks []key.Key) *Forgetting {
	known := s.known(ctx, ks)
	d := deletionOf(context.WithoutCancel(ctx), tier.All, ks)
	return &Forgetting{s, d, s.promotions.refuse(d), known}
}

// ForgetSpace begins to delete all of a space.
func (s *remover) ForgetSpace(id key.SpaceID) *Forgetting {
	d := &deletion{from: tier.All, whole: true, space: id}
	return &Forgetting{s, d, s.promotions.refuse(d), 0}
}

// Delete is the rest of the call Delete, or DeleteSpace.
func (f *Forgetting) Delete(ctx context.Context) (int, error) {
	if f.d.whole {
		return f.remover.DeleteSpace(ctx, f.d.space)
	}
	return f.known, f.remover.delete(ctx, f.d)
}

// End lets lookups find again what Delete has left, after an error.
func (f *Forgetting) End() { f.end() }

// fence is the deletions under way before a lookup reads the index. It must be taken
// then: a deletion that ends in between has left the index, but what was read before
// that has its chunks.
type fence []*deletion

// fence takes one.
func (ps *promotions) fence() fence {
	if ps.running.Load() == 0 {
		return nil
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	list := make(fence, 0, len(ps.mu.deletions))
	for d := range ps.mu.deletions {
		list = append(list, d)
	}
	return list
}

// apply takes out of at, which says where chunks from.. of c are, what is being
// deleted.
func (f fence) apply(c *key.Chain, from int, at []uint8) {
	for _, d := range f {
		for i := from; i < len(at); i++ {
			if at[i] != 0 && d.has(c.Key(i)) {
				at[i] &^= uint8(d.from)
			}
		}
	}
}

// before is how many of the keys come before the first that is being deleted from p.
func (f fence) before(ks []key.Key, p tier.Place) int {
	for i, k := range ks {
		for _, d := range f {
			if d.from.Has(p) && d.has(k) {
				return i
			}
		}
	}
	return len(ks)
}
