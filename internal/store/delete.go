package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// deleteBatch is how many keys a tier is asked to delete at a time: between two
// such steps a deletion notices that its context has ended.
const deleteBatch = 4096

// Remover deletes chunks, in every tier, and on the way between them.
type Remover struct {
	levels     *levels
	index      *tierIndex
	promotions *promotions
	writers    *writeback.Writers
	cleared    cleared
	log        zerolog.Logger
}

// deletion is what one call deletes, while it runs.
type deletion struct {
	from  tier.Set
	keys  []key.Key
	in    map[key.Key]struct{} // the same
	whole bool                 // all of the space, and no keys
	space key.SpaceID
}

func deletionOf(from tier.Set, ks []key.Key) *deletion {
	d := &deletion{from: from, keys: ks, in: make(map[key.Key]struct{}, len(ks))}
	for _, k := range ks {
		d.in[k] = struct{}{}
	}
	return d
}

// Keys implements writeback.Deletion.
func (d *deletion) Keys() ([]key.Key, bool) { return d.keys, d.whole }

// Has reports whether k is deleted.
func (d *deletion) Has(k key.Key) bool {
	if d.whole {
		return k.Space == d.space
	}
	_, ok := d.in[k]
	return ok
}

// list is the keys that are deleted, as far as they are known now: chunks in
// transit to the nearest tier are not.
func (d *deletion) list(x *tierIndex) []key.Key {
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
func (s *Remover) Delete(ctx context.Context, ks []key.Key) (int, error) {
	return s.deleteFrom(ctx, tier.All, ks)
}

// deleteFrom is Delete in some tiers.
func (s *Remover) deleteFrom(ctx context.Context, from tier.Set, ks []key.Key) (int, error) {
	d := deletionOf(from, ks)
	defer s.promotions.refuse(d)()
	known := s.known(ctx, ks)
	return known, s.delete(ctx, d)
}

// delete makes a deletion of which nothing can be promoted: first the chunks that
// could be written go, then those being written, and then those that were. A chunk
// in transit goes back to DRAM where that keeps its chunks.
func (s *Remover) delete(ctx context.Context, d *deletion) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	var errs []error
	if d.from.Has(tier.CPU) {
		errs = append(errs, s.deleteIn(ctx, tier.CPU, d.list(s.index)))
		s.levels.hot.HandedOver() // what is in transit counts as DRAM's
	}
	for _, l := range s.levels.below {
		if !d.from.Has(l.Place) {
			continue
		}
		if !d.from.Has(tier.CPU) {
			defer s.keep(l.writer, d)()
		}
		s.index.Sync(tier.CPU, explain.Deleted, l.writer.Recall(d)...)
		if err := l.writer.AwaitWrites(ctx, d); err != nil {
			errs = append(errs, fmt.Errorf("delete in %s: it is still being written: %w", l.Place, err))
		}
	}
	ks := d.list(s.index)
	for _, l := range s.levels.below {
		if d.from.Has(l.Place) {
			errs = append(errs, s.deleteIn(ctx, l.Place, ks), s.deleteLeft(ctx, l, d))
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
func (s *Remover) keep(w *writeback.Writer, d *deletion) (rewrite func()) {
	rs := slices.DeleteFunc(w.InTransit(d), func(r tier.Record) bool { return !s.writers.Readmit(r.Key) })
	return func() {
		for _, r := range rs {
			w.Forward(r)
		}
	}
}

// known counts the keys that are in some tier.
func (s *Remover) known(ctx context.Context, ks []key.Key) (n int) {
	for part := range slices.Chunk(ks, indexBatch) {
		n += s.index.count(part)
		if ctx.Err() != nil {
			break
		}
	}
	return n
}

// deleteIn forgets the keys in one tier, as long as ctx lasts.
func (s *Remover) deleteIn(ctx context.Context, p tier.Place, ks []key.Key) error {
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

func (s *Remover) deletePart(ctx context.Context, p tier.Place, ks []key.Key) error {
	if there := s.maybeIn(p, ks); len(there) > 0 {
		if err := s.levels.at[p].Tier.Tier.Delete(ctx, there); err != nil {
			return fmt.Errorf("delete in %s: %w", p, err)
		}
	}
	for part := range slices.Chunk(ks, indexBatch) {
		s.index.Clear(p, explain.Deleted, part...)
	}
	return nil
}

// deleteLeft forgets what the index does not know of a space that is deleted,
// because its write was given up before it ended, or its deletion is under way.
func (s *Remover) deleteLeft(ctx context.Context, l *level, d *deletion) error {
	if !d.whole || l.Pending == nil {
		return nil
	}
	return s.deleteIn(ctx, l.Place, l.Pending.Left(d.space))
}

// maybeIn is the keys that a tier has to be asked to delete: it may be in
// trouble, or far away, so that it is not asked without need.
func (s *Remover) maybeIn(p tier.Place, ks []key.Key) []key.Key {
	l := s.levels.at[p]
	var absent func(key.Key) bool
	switch {
	case p == tier.CPU:
	case l.IsShared():
		absent = func(k key.Key) bool { return s.writers.IsLocal(k.Space) }
	case s.levels.scanned(tier.Of(p)) == nil:
		moving := func(k key.Key) bool { return l.Pending != nil && l.Pending.IsPending(k) }
		// A write may land before the look, and an eviction begin behind it.
		absent = func(k key.Key) bool { return !moving(k) && !l.Resident.Has(k) && !moving(k) }
	}
	if absent == nil || !slices.ContainsFunc(ks, absent) {
		return ks
	}
	return slices.DeleteFunc(slices.Clone(ks), absent)
}

// Forgetting is a deletion that has begun: no lookup finds what it names, although
// the tiers still have it. Call End once, after Delete.
type Forgetting struct {
	remover *Remover
	d       *deletion
	end     func()
	known   int
}

// Forget begins to delete the keys. It waits for no tier.
func (s *Remover) Forget(ctx context.Context, ks []key.Key) *Forgetting {
	known := s.known(ctx, ks)
	d := deletionOf(tier.All, ks)
	return &Forgetting{s, d, s.promotions.refuse(d), known}
}

// ForgetSpace begins to delete all of a space.
func (s *Remover) ForgetSpace(id key.SpaceID) *Forgetting {
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
			if at[i] != 0 && d.Has(c.Key(i)) {
				at[i] &^= uint8(d.from)
			}
		}
	}
}

// before is how many of the keys come before the first that is being deleted from p.
func (f fence) before(ks []key.Key, p tier.Place) int {
	for i, k := range ks {
		for _, d := range f {
			if d.from.Has(p) && d.Has(k) {
				return i
			}
		}
	}
	return len(ks)
}

// Purge forgets every chunk of a space, in a shared tier also what others stored
// there, step by step: the first one, with after "", deletes the chunks known here,
// and each at most a page of what the shared tier has. The next one begins after
// Next. A step that failed can be made again, and so can all of them: a chunk
// that is gone is not found again, nor after a power failure. A dry one only counts;
// a chunk that is known here and in the shared tier counts twice then. While what an earlier process left on disk is
// not all known it is ErrOff.
func (s *Remover) Purge(ctx context.Context, id key.SpaceID, after string, dry bool) (p tier.Purged, err error) {
	if after == "" {
		if p.Known, err = s.purgeKnown(ctx, id, dry); err != nil {
			err = fmt.Errorf("purge: %w", err)
		}
	}
	far := s.levels.far()
	if far == nil || !s.writers.Reach(id).Has(far.Place) {
		return p, err
	}
	found, perr := far.Shared.Purge(ctx, id, after, dry, func(k key.Key) { s.index.Clear(far.Place, explain.Deleted, k) })
	if perr != nil {
		err = errors.Join(err, fmt.Errorf("purge %s: %w", far.Place, perr))
	}
	found.Known = p.Known
	return found, err
}

// purgeKnown is Purge for what the index knows.
func (s *Remover) purgeKnown(ctx context.Context, id key.SpaceID, dry bool) (uint64, error) {
	if err := s.levels.scanned(tier.All); err != nil {
		return 0, err
	}
	d := &deletion{from: tier.All, whole: true, space: id}
	if dry {
		return uint64(len(d.list(s.index))), nil
	}
	known, err := s.clear(ctx, d)
	if err == nil {
		err = s.writers.SyncDisk(ctx)
	}
	return uint64(known), err
}

// DeleteSpace is a purge in one call. It returns how many chunks there were.
func (s *Remover) DeleteSpace(ctx context.Context, id key.SpaceID) (n int, err error) {
	for next := ""; ; {
		p, err := s.Purge(ctx, id, next, false)
		n += int(p.Known + p.Found)
		if next = p.Next; next == "" || err != nil {
			return n, err
		}
	}
}

// Clear forgets everything that some tiers have when it is called, and
// returns how many chunks that was. No tier means those of this machine: a
// remote one is shared with others, and must be named. A chunk cleared below
// stays in DRAM if it is there, and is not written again.
func (s *Remover) Clear(ctx context.Context, from tier.Set) (int, error) {
	for p := tier.CPU; p < tier.Places; p++ {
		if from.Has(p) && s.levels.at[p] == nil {
			return 0, fmt.Errorf("clear: %w", notThere("there is no "+p.String()+" tier"))
		}
	}
	from = cmp.Or(from, s.levels.own())
	if err := s.levels.scanned(from); err != nil {
		return 0, fmt.Errorf("clear: %w", err)
	}
	if from != tier.All {
		defer s.cleared.add(from) // last: see Cleared
	}
	n := 0
	for _, id := range s.index.spaces() { // one at a time: the index is locked for one space
		more, err := s.clear(ctx, &deletion{from: from, whole: true, space: id})
		if err != nil {
			return n, fmt.Errorf("clear: %w", err)
		}
		n += more
	}
	s.log.Info().Int("chunks", n).Msg("cleared")
	return n, nil
}

// cleared is the tiers below that were cleared while others kept their chunks,
// until none of those is left. Its mutex is a leaf.
type cleared struct {
	mu struct {
		sync.Mutex
		from  tier.Set
		times uint64
	}
}

func (c *cleared) add(from tier.Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.from |= from &^ tier.Of(tier.CPU)
	c.mu.times++
}

func (c *cleared) read() (from tier.Set, times uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.from, c.mu.times
}

// reset ends it, unless another Clear has ended since times was read.
func (c *cleared) reset(times uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.times == times {
		c.mu.from = 0
	}
}

// Cleared is the chunks that a tier does not have since Clear took them out of
// it, and that are not written to it again: those that are in DRAM only, and those
// that a tier without bounds, which evicts nothing, is not known to have. It costs
// nothing unless there may be some; then it holds the index as Known does.
func (s *Remover) Cleared() (v writeback.Volume) {
	from, times := s.cleared.read()
	if from == 0 {
		return v
	}
	kept := from & s.levels.those(func(l *level) bool { return l.Resident == nil }) // what they are given
	for _, id := range s.index.spaces() {
		in, kept := tier.Of(tier.CPU), kept&s.writers.Reach(id)
		if kept != 0 {
			in = tier.All
		}
		for _, k := range s.index.keys(id, in) {
			if n, is := s.isCleared(k, kept); is {
				v = v.Plus(writeback.Volume{Chunks: 1, Bytes: uint64(n)})
			}
		}
	}
	if v.Chunks == 0 {
		s.cleared.reset(times)
	}
	return v
}

// isCleared reports whether k is in DRAM only, though it was written, or not in
// one of the tiers kept, and how large it is.
func (s *Remover) isCleared(k key.Key, kept tier.Set) (size uint32, is bool) {
	at := s.index.Where(k)
	e, st := s.levels.hot.Ledger().Find(k)
	switch {
	case at == 0 || st == ledger.Resident && e.Dirty:
		return 0, false
	case st == ledger.Resident:
		return e.Size, at == tier.Of(tier.CPU) || kept&^at != 0
	case kept&^at == 0:
		return 0, false
	}
	return s.levels.sizeOf(k), true
}

// clear makes a deletion of a space, and returns how many chunks of it were known.
func (s *Remover) clear(ctx context.Context, d *deletion) (int, error) {
	defer s.promotions.refuse(d)()
	n := len(d.list(s.index))
	return n, s.delete(ctx, d)
}
