package tier

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/radix"
	"github.com/kvstored/kvstored/key"
)

// deleteBatch is how many keys a tier is asked to delete at a time: between two
// such steps a deletion notices that its context has ended.
const deleteBatch = 4096

// deletion is what one call deletes, while it runs.
type deletion struct {
	from  Set
	keys  []key.Key
	in    map[key.Key]struct{} // the same; nil: all of the space
	space key.SpaceID
}

func deletionOf(ctx context.Context, from Set, ks []key.Key) *deletion {
	d := &deletion{from: from, keys: ks, in: make(map[key.Key]struct{}, len(ks))}
	for part := range slices.Chunk(ks, settleBatch) {
		for _, k := range part {
			d.in[k] = struct{}{}
		}
		if fair.Yield(ctx); ctx.Err() != nil {
			break // none of it is deleted: see delete
		}
	}
	return d
}

// has reports whether k is deleted.
func (d *deletion) has(k key.Key) bool {
	if d.in == nil {
		return k.Space == d.space
	}
	_, ok := d.in[k]
	return ok
}

// list is the keys that are deleted, as far as they are known now: what is on
// its way down to the nearest tier is not.
func (d *deletion) list(s *Stack) []key.Key {
	if d.in == nil {
		return s.keysOf(d.space, d.from)
	}
	return d.keys
}

// Delete forgets the keys in every tier and returns how many were known. It
// waits for what is being written below. Once it has returned without an error
// nobody will find what was stored before the call, not even for a moment;
// what others store meanwhile may go too. After an error, also that of ctx, some
// of it may still be there, in the tiers that it names.
func (s *Stack) Delete(ctx context.Context, ks []key.Key) (int, error) {
	d := deletionOf(ctx, All, ks)
	defer s.coming.refuse(d)()
	known := s.known(ctx, ks)
	return known, s.delete(ctx, d)
}

// delete makes a deletion of which nothing can come up: first what could be
// written goes, then what is being written, and then what was. What is on its
// way down goes back to DRAM where that keeps what it has.
func (s *Stack) delete(ctx context.Context, d *deletion) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	var errs []error
	if d.from.Has(CPU) {
		errs = append(errs, s.deleteIn(ctx, CPU, d.list(s)))
		s.hot.HandedOver() // what is on its way down counts as DRAM's
	}
	for _, w := range s.writers {
		if !d.from.Has(w.place) {
			continue
		}
		if !d.from.Has(CPU) {
			defer w.keep(s.departing.list(d, w))()
		}
		s.settle(CPU, s.departing.recall(d, w)...)
		fair.Leave(ctx)
		if err := w.idle(ctx, d); err != nil {
			errs = append(errs, fmt.Errorf("delete in %s: it is still being written: %w", w.place, err))
		}
	}
	ks := d.list(s)
	for p := Disk; p < Places; p++ {
		if d.from.Has(p) && s.tiers[p] != nil {
			errs = append(errs, s.deleteIn(ctx, p, ks), s.deleteLeft(ctx, p, d))
		}
	}
	if d.from.Has(CPU) {
		// What was stored meanwhile and has reached a tier below before it was
		// deleted there would be clean, and nowhere else.
		errs = append(errs, s.deleteIn(ctx, CPU, ks))
	}
	return errors.Join(errs...)
}

// keep has what is on its way to the tier, which is about to be deleted there,
// back in DRAM. It is to be written anew once the result is called.
func (w *writer) keep(rs []Record) (rewrite func()) {
	rs = slices.DeleteFunc(rs, func(r Record) bool { return !w.stack.readmit(r.Key) })
	return func() {
		for _, r := range rs {
			w.passedOn(r)
		}
	}
}

// known counts the keys that are in some tier.
func (s *Stack) known(ctx context.Context, ks []key.Key) (n int) {
	for part := range slices.Chunk(ks, settleBatch) {
		s.mu.Lock()
		for _, k := range part {
			if at, _ := s.mu.tree.Get(k.Space, k.Hash); at != 0 {
				n++
			}
		}
		s.mu.Unlock()
		if fair.Yield(ctx); ctx.Err() != nil {
			break
		}
	}
	return n
}

// deleteIn forgets the keys in one tier, as long as ctx lasts.
func (s *Stack) deleteIn(ctx context.Context, p Place, ks []key.Key) error {
	for part := range slices.Chunk(ks, deleteBatch) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("delete in %s: %w", p, err)
		}
		if err := s.deletePart(ctx, p, part); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stack) deletePart(ctx context.Context, p Place, ks []key.Key) error {
	if there := s.maybeIn(p, ks); len(there) > 0 {
		if p != CPU {
			fair.Leave(ctx)
		}
		if err := s.tiers[p].Delete(ctx, there); err != nil {
			return fmt.Errorf("delete in %s: %w", p, err)
		}
	}
	for part := range slices.Chunk(ks, settleBatch) {
		s.forget(p, part...)
		fair.Yield(ctx)
	}
	return nil
}

// deleteLeft forgets what the index does not know of a space that is deleted,
// because its write was given up before it landed, or its deletion is under way.
func (s *Stack) deleteLeft(ctx context.Context, p Place, d *deletion) error {
	t, lasting := under[Unsettled](s.tiers[p])
	if d.in != nil || !lasting {
		return nil
	}
	return s.deleteIn(ctx, p, t.Left(d.space))
}

// maybeIn is the keys that a tier below DRAM has to be asked to delete: it may
// be in trouble, or far away, so that it is not asked without need.
func (s *Stack) maybeIn(p Place, ks []key.Key) []key.Key {
	var absent func(key.Key) bool
	t, bounded := s.tiers[p].(Resident)
	switch {
	case p == Disk && bounded && s.scanned() == nil:
		u, lasting := under[Unsettled](s.tiers[p])
		moving := func(k key.Key) bool { return lasting && u.Unsettled(k) }
		// A write may land before the look, and an eviction begin behind it.
		absent = func(k key.Key) bool { return !moving(k) && !t.Has(k) && !moving(k) }
	case p == Remote:
		absent = func(k key.Key) bool { return s.local.has(k.Space) }
	}
	if absent == nil || !slices.ContainsFunc(ks, absent) {
		return ks
	}
	return slices.DeleteFunc(slices.Clone(ks), absent)
}

// Known returns the keys of a space that are in some tier, in no order. It
// holds the index for some 20 ns a key: it is for what somebody asks by hand.
func (s *Stack) Known(id key.SpaceID) []key.Key { return s.keysOf(id, All) }

// keysOf lists what some tier of a set has of a space.
func (s *Stack) keysOf(id key.SpaceID, in Set) (ks []key.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tree.Walk(id, func(hash, _ key.Hash, _ int, at radix.Loc) bool {
		if Set(at)&in != 0 {
			ks = append(ks, key.Key{Space: id, Hash: hash})
		}
		return true
	})
	return ks
}
