package stack

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kvstored/kvstored/internal/departed"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// deleteBatch is how many keys a tier is asked to delete at a time: between two
// such steps a deletion notices that its context has ended.
const deleteBatch = 4096

// remover deletes chunks, in every tier, and on the way between them.
type remover struct{ *dram }

// deletion is what one call deletes, while it runs.
type deletion struct {
	from  tier.Set
	keys  []key.Key
	in    map[key.Key]struct{} // the same; nil: they are few
	whole bool                 // all of the space, and no keys
	space key.SpaceID
}

// fewKeys are looked through sooner than a map of them is made.
const fewKeys = 4

func deletionOf(ctx context.Context, from tier.Set, ks []key.Key) *deletion {
	d := &deletion{from: from, keys: ks}
	if len(ks) <= fewKeys {
		return d
	}
	d.in = make(map[key.Key]struct{}, len(ks))
	for part := range slices.Chunk(ks, indexBatch) {
		for _, k := range part {
			d.in[k] = struct{}{}
		}
		if ctx.Err() != nil {
			break // none of it is deleted: see delete
		}
	}
	return d
}

// has reports whether k is deleted.
func (d *deletion) has(k key.Key) bool {
	switch {
	case d.whole:
		return k.Space == d.space
	case d.in == nil:
		return slices.Contains(d.keys, k)
	}
	_, ok := d.in[k]
	return ok
}

// list is the keys that are deleted, as far as they are known now: chunks in
// transit to the nearest tier are not.
func (d *deletion) list(x *index) []key.Key {
	if d.whole {
		return x.keys(d.space, d.from)
	}
	return d.keys
}

// Delete forgets the keys in every tier and returns how many were known. It
// waits for the writes under way. Once it has returned without an error
// no lookup finds a chunk that was stored before the call, not even for a moment;
// chunks that others store meanwhile may go too. After an error, also that of ctx, some
// of it may still be there, in the tiers that it names.
func (s *remover) Delete(ctx context.Context, ks []key.Key) (int, error) {
	return s.deleteFrom(ctx, tier.All, ks)
}

// deleteFrom is Delete in some tiers.
func (s *remover) deleteFrom(ctx context.Context, from tier.Set, ks []key.Key) (int, error) {
	d := deletionOf(ctx, from, ks)
	defer s.promotions.refuse(d)()
	known := s.known(ctx, ks)
	return known, s.delete(ctx, d)
}

// deleteOne is Delete of a key.
func (s *remover) deleteOne(ctx context.Context, k key.Key) error {
	d := deletionOf(ctx, tier.All, []key.Key{k})
	defer s.promotions.refuse(d)()
	return s.delete(ctx, d)
}

// delete makes a deletion of which nothing can be promoted: first the chunks that
// could be written go, then those being written, and then those that were. A chunk
// in transit goes back to DRAM where that keeps its chunks.
func (s *remover) delete(ctx context.Context, d *deletion) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	var errs []error
	if d.from.Has(tier.CPU) {
		errs = append(errs, s.deleteIn(ctx, tier.CPU, d.list(s.index)))
		s.hot.HandedOver() // what is in transit counts as DRAM's
	}
	for _, l := range s.levels.below {
		w := l.writer
		if !d.from.Has(l.place) {
			continue
		}
		if !d.from.Has(tier.CPU) {
			defer s.keep(w, s.transit.list(d, &w.queue))()
		}
		s.index.syncGone(tier.CPU, departed.Deleted, s.transit.recall(d, &w.queue)...)
		// Tasks that no worker has taken yet need not be waited for: they will find that
		// their chunk was deleted, or recalled, or cannot be promoted.
		if err := w.await(ctx, func() bool { return !w.mu.atWork.touches(d) }); err != nil {
			errs = append(errs, fmt.Errorf("delete in %s: it is still being written: %w", w.to.place, err))
		}
	}
	ks := d.list(s.index)
	for _, l := range s.levels.below {
		if d.from.Has(l.place) {
			errs = append(errs, s.deleteIn(ctx, l.place, ks), s.deleteLeft(ctx, l, d))
		}
	}
	if d.from.Has(tier.CPU) && len(s.levels.below) > 0 {
		// A chunk that was stored meanwhile and has reached a tier below before it was
		// deleted there would be clean, and nowhere else.
		errs = append(errs, s.deleteIn(ctx, tier.CPU, ks))
	}
	return errors.Join(errs...)
}

// keep has the chunks in transit to the tier, which are about to be deleted there,
// back in DRAM. They are to be written anew once the result is called.
func (s *remover) keep(w *writer, rs []tier.Record) (rewrite func()) {
	rs = slices.DeleteFunc(rs, func(r tier.Record) bool { return !s.readmit(r.Key) })
	return func() {
		for _, r := range rs {
			w.forwarded(r)
		}
	}
}

// known counts the keys that are in some tier.
func (s *remover) known(ctx context.Context, ks []key.Key) (n int) {
	for part := range slices.Chunk(ks, indexBatch) {
		n += s.index.count(part)
		if ctx.Err() != nil {
			break
		}
	}
	return n
}

// deleteIn forgets the keys in one tier, as long as ctx lasts.
func (s *remover) deleteIn(ctx context.Context, p tier.Place, ks []key.Key) error {
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

func (s *remover) deletePart(ctx context.Context, p tier.Place, ks []key.Key) error {
	if there := s.maybeIn(p, ks); len(there) > 0 {
		if err := s.levels.at[p].tier.Delete(ctx, there); err != nil {
			return fmt.Errorf("delete in %s: %w", p, err)
		}
	}
	for part := range slices.Chunk(ks, indexBatch) {
		s.index.clear(p, departed.Deleted, part...)
	}
	return nil
}

// deleteLeft forgets what the index does not know of a space that is deleted,
// because its write was given up before it ended, or its deletion is under way.
func (s *remover) deleteLeft(ctx context.Context, l *level, d *deletion) error {
	if !d.whole || l.Unsettled == nil {
		return nil
	}
	return s.deleteIn(ctx, l.place, l.Unsettled.Left(d.space))
}

// maybeIn is the keys that a tier has to be asked to delete: it may be in
// trouble, or far away, so that it is not asked without need.
func (s *remover) maybeIn(p tier.Place, ks []key.Key) []key.Key {
	l := s.levels.at[p]
	var absent func(key.Key) bool
	switch {
	case p == tier.CPU:
	case l.shared():
		absent = func(k key.Key) bool { return s.local.has(k.Space) }
	case s.scanned(tier.Of(p)) == nil:
		moving := func(k key.Key) bool { return l.Unsettled != nil && l.Unsettled.Unsettled(k) }
		// A write may land before the look, and an eviction begin behind it.
		absent = func(k key.Key) bool { return !moving(k) && !l.Resident.Has(k) && !moving(k) }
	}
	if absent == nil || !slices.ContainsFunc(ks, absent) {
		return ks
	}
	return slices.DeleteFunc(slices.Clone(ks), absent)
}

// Known returns the keys of a space that are in some tier, in no order. It
// holds the index for some 20 ns a key: it is for what an operator asks by hand.
func (s *remover) Known(id key.SpaceID) []key.Key { return s.index.keys(id, tier.All) }
