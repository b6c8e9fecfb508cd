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
	d := &deletion{from: tier.All, space: id}
	return &Forgetting{s, d, s.promotions.refuse(d), 0}
}

// Delete is the rest of the call Delete, or DeleteSpace.
func (f *Forgetting) Delete(ctx context.Context) (int, error) {
	if f.d.in == nil {
		return f.remover.DeleteSpace(ctx, f.d.space)
	}
	return f.known, f.remover.delete(ctx, f.d)
}

// End lets lookups find again what Delete has left, after an error.
func (f *Forgetting) End() { f.end() }

// fence takes out of at, which says where chunks from.. of c are, what is being
// deleted.
func (ps *promotions) fence(c *key.Chain, from int, at []uint8) {
	if ps.running.Load() == 0 {
		return
	}
	for _, d := range ps.deletionsNow() {
		for i := from; i < len(at); i++ {
			if at[i] != 0 && d.has(c.Key(i)) {
				at[i] &^= uint8(d.from)
			}
		}
	}
}

// deletionsNow are those that are under way.
func (ps *promotions) deletionsNow() []*deletion {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var list []*deletion
	for d := range ps.mu.deletions {
		list = append(list, d)
	}
	return list
}
