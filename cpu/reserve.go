package cpu

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// evictFactor bounds what one allocation may evict: past this many times its
// own size the arena is too fragmented, or too protected, to be worth it. A
// victim's size is known only when it is out, so another one is taken only if
// with one of the allocation's own size it would stay within the bound; an
// allocation smaller than its victims always has one.
const evictFactor = 4

// Reserve implements tier.Hot.
func (t *Tier) Reserve(ctx context.Context, f tier.Fill) (tier.Ref, ledger.State, error) {
	for {
		var changed <-chan struct{}
		if f.Waits() {
			changed = t.ledger.Released() // taken first, so that nothing is missed
		}
		id, st, err := t.ledger.Begin(f.Owner, f.Class, f.Key, f.Parent, f.Size)
		full := errors.Is(err, ledger.ErrFull)
		if full {
			if _, _, ok := t.evictTo(f.Drop, f.Patience >= tier.Patient); ok {
				continue
			}
		}
		busy := full || errors.Is(err, ledger.ErrBusy) || errors.Is(err, ledger.ErrOwn)
		if busy && f.Waits() {
			if err = t.mayWait(&f, changed, nil); err == nil {
				err = t.wait(ctx, f.Patience == tier.Try, changed, nil)
			}
			if err == nil {
				continue
			}
		}
		if err != nil {
			countRefused(t, err)
			return tier.Ref{}, ledger.Absent, fmt.Errorf("cpu: reserve: %w", tier.Refusal(err))
		}
		if st != ledger.Absent {
			return tier.Ref{}, st, nil
		}
		b, err := t.room(ctx, id, f)
		if err != nil {
			t.ledger.Abort(id)
			countRefused(t, err)
			return tier.Ref{}, ledger.Absent, fmt.Errorf("cpu: reserve %d bytes: %w", f.Size, err)
		}
		t.keep(id, b, f.Record)
		return tier.Ref{ID: id, Block: b}, ledger.Absent, nil
	}
}

// room returns the block of a fill.
func (t *Tier) room(ctx context.Context, id ledger.ID, f tier.Fill) (arena.Block, error) {
	if f.Block.Valid() {
		return f.Block.Retain(), nil
	}
	if err := t.keepQuota(ctx, id, &f); err != nil {
		return arena.Block{}, err
	}
	return t.alloc(ctx, f)
}

// keepQuota makes the space of a fill evict its own until it keeps its quota,
// whether or not there is room otherwise. It waits, if it may, for those who are to
// write what would be lost.
func (t *Tier) keepQuota(ctx context.Context, id ledger.ID, f *tier.Fill) error {
	for {
		var changed <-chan struct{}
		if f.Waits() {
			changed = t.ledger.Released() // taken first, so that nothing is missed
		}
		var err error
		_, _, ok := t.handOver(f.Drop, func() (e ledger.Entry, ok bool) {
			e, ok, err = t.ledger.EvictOwn(id, f.Patience >= tier.Patient)
			return e, ok
		})
		switch {
		case f.Waits() && errors.Is(err, ledger.ErrBusy):
			if err := t.await(ctx, f, changed, nil); err != nil {
				return err
			}
		case !ok:
			return tier.Refusal(err)
		}
	}
}

// mayWait is an error if only the client of a fill can let something go,
// so that waiting would not end, and nothing was let go of since the channels
// were taken. What the daemon fills and has no room for yet does not count.
func (t *Tier) mayWait(f *tier.Fill, changed, freed <-chan struct{}) error {
	client := max(f.Owner, f.For) // the daemon is 0
	if client == ledger.Daemon || t.ledger.OthersHold(client, int(t.waiting.Load())) || f.Writing != nil && f.Writing() {
		return nil
	}
	t.HandedOver() // a victim leaves the ledger before the arena
	select {
	case <-changed:
		return nil
	case <-freed:
		return nil
	default:
		return ledger.ErrOwn
	}
}

// alloc tries, evicts one candidate, and tries again, until it fits, nothing
// is left to evict, or evictFactor is reached. Then it waits, if it may and there
// is something to wait for: memory that others hold, or victims that are still
// being written. Once evictFactor is reached with all of that free, either the
// free room lies in pieces, and it waits for a change of these, or other fills
// were faster, and it begins again.
func (t *Tier) alloc(ctx context.Context, f tier.Fill) (arena.Block, error) {
	limit := (evictFactor-1)*occupied(f.Size) + 1
	var evicted int64
	demoting := false          // a victim still has its memory
	enough := occupied(f.Size) // what is to be free before blocks are moved
	for {
		var freed, changed <-chan struct{}
		if f.Waits() {
			freed, changed = t.arena.Freed(), t.ledger.Released()
		}
		b, err := t.place(ctx, f.Size, &enough)
		if !errors.Is(err, arena.ErrFull) {
			return b, err
		}
		if evicted < limit && !f.Free {
			if n, stays, ok := t.evictTo(f.Drop, f.Patience >= tier.Patient); ok {
				evicted += n
				demoting = demoting || stays
				continue
			}
		}
		if !f.Waits() {
			return arena.Block{}, tier.ErrNoSpace
		}
		if evicted < limit || demoting || inPieces(t.arena, f.Size) {
			err = t.await(ctx, &f, changed, freed)
		} else { // others took what was freed
			err = t.usable(ctx)
		}
		if err != nil {
			return arena.Block{}, err
		}
		evicted, demoting = 0, false
		select {
		case <-changed: // a block that could not be moved was released, perhaps
			enough = occupied(f.Size)
		default: // another attempt to move frees what it had cleared, too
		}
	}
}

// place allocates a block of n bytes. Where enough is free, but in pieces, it
// moves blocks: the policy chooses the victims, and not the place where they lie.
// An attempt that fails raises enough, so that the next one waits for more free
// room. The error is arena.ErrFull where there is none in one piece.
func (t *Tier) place(ctx context.Context, n uint32, enough *int64) (arena.Block, error) {
	for {
		b, err := t.arena.Alloc(int(n))
		switch {
		case errors.Is(err, arena.ErrTooLarge):
			return arena.Block{}, fmt.Errorf("%w: %w", tier.ErrTooLarge, err)
		case !errors.Is(err, arena.ErrFull):
			return b, err
		}
		free := t.arena.Stats().FreeBytes
		if free < *enough || t.guard.on.Load() {
			return arena.Block{}, err
		}
		if b, err := t.arena.Compact(ctx, int(n), t.move); !errors.Is(err, arena.ErrFull) {
			return b, err
		}
		*enough = free + occupied(n)/2 // the attempt itself has freed what it had cleared
	}
}

// await is wait for a fill that has begun, unless that does not help.
func (t *Tier) await(ctx context.Context, f *tier.Fill, changed, freed <-chan struct{}) error {
	if f.Owner == ledger.Daemon {
		t.waiting.Add(1)
		defer t.waiting.Add(-1)
	}
	if !t.arena.Populating() { // which wakes it
		if err := t.mayWait(f, changed, freed); err != nil {
			return tier.Refusal(err)
		}
	}
	return t.wait(ctx, f.Patience == tier.Try, changed, freed)
}

// inPieces reports whether enough is free for n bytes, but nowhere at a stretch.
func inPieces(a *arena.Arena, n uint32) bool {
	st := a.Stats()
	return st.FreeBytes >= occupied(n) && st.LargestFreeBytes < occupied(n)
}

// wait ends at a change of the ledger's holds, at a free in the arena, or with
// ctx. A try does not wait.
func (t *Tier) wait(ctx context.Context, try bool, changed, freed <-chan struct{}) error {
	if try {
		return tier.ErrMustWait
	}
	select {
	case <-changed:
	case <-freed:
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // also where both came at once: several fills give up together
		return fmt.Errorf("%w: %w", tier.ErrNoSpace, context.Cause(ctx))
	}
	return t.usable(ctx)
}

// evictTo hands one victim of n bytes over, whose memory perhaps stays in use;
// if safely, none that would be lost for want of patience. Without a drop none goes.
func (t *Tier) evictTo(drop func(tier.Victim) bool, safely bool) (n int64, stays, ok bool) {
	if safely {
		return t.handOver(drop, t.ledger.EvictSafely)
	}
	return t.handOver(drop, t.ledger.Evict)
}

// handOver is evictTo for a victim that evict takes out.
func (t *Tier) handOver(drop func(tier.Victim) bool, evict func() (ledger.Entry, bool)) (n int64, stays, ok bool) {
	if drop == nil || t.guard.on.Load() {
		return 0, false, false
	}
	t.handing.RLock()
	defer t.handing.RUnlock()
	e, ok := evict()
	if !ok {
		return 0, false, false
	}
	v := t.victim(e)
	return occupied(v.Size), drop(v), true
}

// MakeRoom implements tier.Hot.
func (t *Tier) MakeRoom(ctx context.Context, r tier.Room) (waited bool, err error) {
	for ; ; waited = true {
		freed, changed := t.arena.Freed(), t.ledger.Released() // taken first, so that nothing is missed
		demoting := r.Demoting()
		free := t.arena.Stats().FreeBytes
		for free < r.Bytes && free+demoting < max(r.Bytes, r.Ahead()) {
			n, stays, ok := t.evictTo(r.Drop, true)
			if !ok {
				break
			}
			if stays {
				demoting += n
			} else {
				free += n
			}
		}
		if free >= r.Bytes || demoting == 0 {
			return waited, nil
		}
		if err := t.wait(ctx, r.Try, changed, freed); err != nil {
			return true, err
		}
	}
}

// EvictOne implements tier.Hot.
func (t *Tier) EvictOne(drop func(tier.Victim) bool) bool {
	_, _, ok := t.evictTo(drop, true)
	return ok
}

// HandedOver implements tier.Hot.
func (t *Tier) HandedOver() {
	t.handing.Lock()
	defer t.handing.Unlock()
}

// victim ends an entry that the ledger evicted.
func (t *Tier) victim(e ledger.Entry) tier.Victim {
	b := t.block(e) // the residency's reference passes to the victim
	t.notes.leave(b)
	t.ledger.Free(e.ID)
	t.payloadBytes.Add(-int64(e.Size))
	t.evictions.Add(1)
	t.evictedBytes.Add(uint64(e.Size))
	return tier.Victim{Record: tier.HotRecord(e, b.Sum()), Block: b, Dirty: e.Dirty && b.Sealed(), Charged: e.Charged}
}

// Shrink implements tier.Hot. It counts the bytes of its victims instead of
// watching the arena: a victim that is demoted frees its room only later.
func (t *Tier) Shrink(ctx context.Context, demoting int64, drop func(tier.Victim) bool) {
	for ok := true; ok; {
		_, _, ok = t.handOver(drop, t.ledger.EvictOver)
	}
	used, high, goal := t.arena.Stats().UsedBytes-demoting, t.high(), t.goal
	m := t.mistrust()
	emptying := m > t.emptied.Load()
	if emptying {
		high, goal = 0, func() int64 { return 0 }
	}
	if used <= high {
		return
	}
	for ctx.Err() == nil && used > goal() {
		n, _, ok := t.evictTo(drop, true)
		if !ok {
			break
		}
		used -= n
	}
	if emptying && t.ledger.Stats().EvictableBytes == 0 { // else Crowded asks again
		t.emptied.Store(m)
	}
}

// putAside counts the entries and blocks that were put aside, and their bytes.
func (t *Tier) putAside() (n, bytes int64) {
	n, bytes = t.arena.Aside()
	return n + t.aside.Load(), bytes + t.asideBytes.Load()
}

// mistrust counts a thousand put aside, and each hundredth of the arena. One more has
// Shrink empty the tier of all that is not protected: so many are not the only wrong ones.
func (t *Tier) mistrust() int64 {
	n, bytes := t.putAside()
	if n == 0 {
		return 0
	}
	return max(n/1000, bytes/(t.arena.Stats().CapacityBytes/100))
}

// Mistrusted is the trouble for readiness; nil where mistrust is 0.
func (t *Tier) Mistrusted() error {
	if t.mistrust() == 0 {
		return nil
	}
	n, bytes := t.putAside()
	return fmt.Errorf("%d chunks of DRAM (%d bytes) are put aside, so that it is emptied of what nobody has leased", n, bytes)
}

// Crowded implements tier.Hot.
func (t *Tier) Crowded(demoting int64) bool {
	return t.arena.Stats().UsedBytes-demoting > t.high() || t.ledger.OverQuota() || t.mistrust() > t.emptied.Load()
}

// Trim implements tier.Resident, for a tier on its own: the store has Shrink hand it the
// victims.
func (t *Tier) Trim(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	for gone := -1; gone < len(out); { // again where victims are still read
		gone = len(out)
		t.Shrink(ctx, -n, func(v tier.Victim) bool {
			out = append(out, v.Key)
			v.Block.Release()
			return false
		})
	}
	if err := ctx.Err(); err != nil || t.guard.on.Load() || t.arena.Stats().UsedBytes+n <= t.high() {
		return out, err
	}
	return out, fmt.Errorf("cpu: trim: everything left is protected or still read: %w", tier.ErrNoSpace)
}

// Publish implements tier.Hot.
func (t *Tier) Publish(refs []tier.Ref, dirty, held bool) {
	var ids [batch]ledger.ID
	for left := refs; len(left) > 0; {
		part := left[:min(batch, len(left))]
		n := 0
		for _, r := range part {
			if !r.Block.Sealed() { // its memory is nobody's from now on
				base.Broken("cpu: entry %d is published, and its payload is not sealed", r.ID)
				t.ledger.Abort(r.ID)
				continue
			}
			ids[n] = r.ID
			n++
			t.payloadBytes.Add(int64(r.Block.Len()))
			t.putBytes.Add(uint64(r.Block.Len()))
			if held {
				r.Block.Retain()
			}
		}
		t.publish(ids[:n], dirty, held)
		left = left[len(part):]
	}
	t.puts.Add(uint64(len(refs)))
	if !held {
		clear(refs)
	}
}

func (t *Tier) publish(ids []ledger.ID, dirty, held bool) {
	t.notes.publish(t, ids)
	if !held {
		t.ledger.Publish(ids, dirty)
		return
	}
	if _, err := t.ledger.PublishHeld(ledger.Daemon, ledger.IO, ids, dirty); err != nil {
		base.Broken("cpu: holds for I/O have no budget, yet: %v", err)
	}
}

// Abort implements tier.Hot. The memory is free before the ledger says so: see
// mayWait.
func (t *Tier) Abort(refs []tier.Ref) {
	for i, r := range refs {
		r.Block.Release()
		t.ledger.Abort(r.ID)
		refs[i] = tier.Ref{}
	}
}

// batch is how many entries one lock round handles; the scratch for them
// lies on the stack.
const batch = 256

// few is a run for which less scratch is made: it is cleared at each call.
const few = 8

// Hold implements tier.Hot.
func (t *Tier) Hold(o ledger.Owner, c ledger.Class, ks []key.Key, refs []tier.Ref) (int, error) {
	if len(ks) <= few {
		var scratch [few]ledger.Entry
		return holdRun(t, o, c, ks, refs, scratch[:])
	}
	var scratch [batch]ledger.Entry
	return holdRun(t, o, c, ks, refs, scratch[:])
}

// holdRun is Hold with scratch for as many entries as one lock round handles.
func holdRun(t *Tier, o ledger.Owner, c ledger.Class, ks []key.Key, refs []tier.Ref, scratch []ledger.Entry) (int, error) {
	n := 0
	for n < len(ks) {
		part := ks[n:min(n+len(scratch), len(ks))]
		t.deleting.RLock()
		got, err := t.ledger.Hold(o, c, part, scratch)
		for i, e := range scratch[:got] {
			refs[n+i] = tier.Ref{ID: e.ID, Block: t.block(e).Retain(), Dirty: e.Dirty}
		}
		t.deleting.RUnlock()
		if right := sound(t, o, c, part, refs[n:n+got]); right < got {
			return n + right, nil
		}
		n += got
		if got < len(part) {
			return n, err
		}
	}
	return n, nil
}

// Release implements tier.Hot.
func (t *Tier) Release(o ledger.Owner, c ledger.Class, refs []tier.Ref) {
	var ids [batch]ledger.ID
	for len(refs) > 0 {
		part := refs[:min(batch, len(refs))]
		// The blocks first: a waiter that the ledger wakes finds that an eviction
		// frees room.
		for i, r := range part {
			ids[i] = r.ID
			r.Block.Release()
			part[i] = tier.Ref{}
		}
		t.ledger.Unhold(o, c, ids[:len(part)])
		refs = refs[len(part):]
	}
}
