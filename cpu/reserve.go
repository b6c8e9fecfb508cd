package cpu

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvstored/kvstored/internal/arena"
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
		if f.Wait {
			changed = t.ledger.Released() // taken first, so that nothing is missed
		}
		id, st, err := t.ledger.Begin(f.Owner, f.Class, f.Key, f.Parent, f.Size)
		if errors.Is(err, ledger.ErrBusy) && f.Wait {
			if err := t.wait(ctx, changed, nil); err != nil {
				return tier.Ref{}, ledger.Absent, err
			}
			continue
		}
		if err != nil {
			t.refused.Add(1)
			return tier.Ref{}, ledger.Absent, fmt.Errorf("cpu: reserve: %w", tier.Refusal(err))
		}
		if st != ledger.Absent {
			return tier.Ref{}, st, nil
		}
		if err := t.keepQuota(id, f.Drop); err != nil {
			t.ledger.Abort(id)
			t.refused.Add(1)
			return tier.Ref{}, ledger.Absent, fmt.Errorf("cpu: reserve %d bytes: %w", f.Size, err)
		}
		b, err := t.alloc(ctx, f)
		if err != nil {
			t.ledger.Abort(id)
			t.refused.Add(1)
			return tier.Ref{}, ledger.Absent, fmt.Errorf("cpu: reserve %d bytes: %w", f.Size, err)
		}
		t.ledger.SetValue(id, tier.HotValue(b, f.Record))
		return tier.Ref{ID: id, Block: b}, ledger.Absent, nil
	}
}

// keepQuota makes the space of a fill evict its own until it keeps its quota,
// whether or not there is room otherwise.
func (t *Tier) keepQuota(id ledger.ID, drop func(tier.Victim) bool) error {
	t.handing.RLock()
	defer t.handing.RUnlock()
	for {
		e, over, ok := t.ledger.EvictOwn(id)
		if !over {
			return nil
		}
		if !ok {
			return fmt.Errorf("everything its space has is in use: %w", tier.ErrOverQuota)
		}
		drop(t.victim(e))
	}
}

// OverQuota implements tier.Quoted.
func (t *Tier) OverQuota() bool { return t.ledger.OverQuota() }

// Assign implements tier.Quoted.
func (t *Tier) Assign(space key.SpaceID, quota int) { t.ledger.Assign(space, quota) }

// alloc tries, evicts one candidate, and tries again, until it fits, nothing
// is left to evict, or evictFactor is reached. Then it waits, if it may and
// there is something to wait for: memory that others hold, or victims that
// are still being written. Once evictFactor is reached with all of that free,
// either what is free lies in pieces, and waiting would not end, or others
// were faster, and it begins again.
func (t *Tier) alloc(ctx context.Context, f tier.Fill) (arena.Block, error) {
	limit := (evictFactor-1)*occupied(f.Size) + 1
	var evicted int64
	leaving := false
	for {
		var freed, changed <-chan struct{}
		if f.Wait {
			freed, changed = t.arena.Freed(), t.ledger.Released()
		}
		b, err := t.arena.Alloc(int(f.Size))
		switch {
		case err == nil:
			return b, nil
		case errors.Is(err, arena.ErrTooLarge):
			return arena.Block{}, fmt.Errorf("%w: %w", tier.ErrTooLarge, err)
		case !errors.Is(err, arena.ErrFull):
			return arena.Block{}, err
		}
		if evicted < limit {
			if n, stays, ok := t.evictTo(f.Drop); ok {
				evicted += n
				leaving = leaving || stays
				continue
			}
		}
		spent := evicted >= limit && !leaving
		if !f.Wait || spent && t.inPieces(f.Size) {
			return arena.Block{}, tier.ErrNoSpace
		}
		if spent { // others took what was freed
			if err := t.usable(ctx); err != nil {
				return arena.Block{}, err
			}
		} else if err := t.wait(ctx, changed, freed); err != nil {
			return arena.Block{}, err
		}
		evicted, leaving = 0, false
	}
}

// inPieces reports whether enough is free for n bytes, but nowhere at a stretch.
func (t *Tier) inPieces(n uint32) bool {
	st := t.arena.Stats()
	return st.FreeBytes >= occupied(n) && st.LargestFreeBytes < occupied(n)
}

// wait ends at a change of what is held, at a free in the arena, or with ctx.
func (t *Tier) wait(ctx context.Context, changed, freed <-chan struct{}) error {
	select {
	case <-changed:
	case <-freed:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", tier.ErrNoSpace, context.Cause(ctx))
	}
	return t.usable(ctx)
}

// evictTo hands one victim of n bytes over, whose memory perhaps stays in use.
func (t *Tier) evictTo(drop func(tier.Victim) bool) (n int64, stays, ok bool) {
	t.handing.RLock()
	defer t.handing.RUnlock()
	v, ok := t.evict()
	if !ok {
		return 0, false, false
	}
	return occupied(v.Size), drop(v), true
}

// shedTo hands over one victim of a quota that is exceeded, if there is one.
func (t *Tier) shedTo(drop func(tier.Victim) bool) bool {
	t.handing.RLock()
	defer t.handing.RUnlock()
	e, ok := t.ledger.EvictOver()
	if ok {
		drop(t.victim(e))
	}
	return ok
}

// handedOver waits for the victims that have left the ledger before the call.
func (t *Tier) handedOver() {
	t.handing.Lock()
	defer t.handing.Unlock()
}

func (t *Tier) evict() (tier.Victim, bool) {
	e, ok := t.ledger.Evict()
	if !ok {
		return tier.Victim{}, false
	}
	return t.victim(e), true
}

// victim ends an entry that the ledger evicted.
func (t *Tier) victim(e ledger.Entry) tier.Victim {
	b := t.block(e) // the residency's reference passes to the victim
	t.ledger.Free(e.ID)
	t.payloadBytes.Add(-int64(e.Size))
	t.evictions.Add(1)
	t.evictedBytes.Add(uint64(e.Size))
	return tier.Victim{Record: tier.HotRecord(e, b.Sum()), Block: b, Dirty: e.Dirty, Hits: e.Hits}
}

// Shrink implements tier.Hot. It counts what it evicts instead of watching
// the arena: a victim on its way down frees its room only later.
func (t *Tier) Shrink(ctx context.Context, leaving int64, drop func(tier.Victim) bool) {
	t.handedOver()
	for t.shedTo(drop) {
	}
	used := t.arena.Stats().UsedBytes - leaving
	if used <= t.high {
		return
	}
	for ctx.Err() == nil && used > t.goal() {
		n, _, ok := t.evictTo(drop)
		if !ok {
			return
		}
		used -= n
	}
}

// Crowded implements tier.Hot.
func (t *Tier) Crowded(leaving int64) bool {
	return t.arena.Stats().UsedBytes-leaving > t.high || t.ledger.OverQuota()
}

// Trim implements tier.Resident. Dirty victims are lost: it is for a tier on
// its own; the Stack uses Shrink and writes them down.
func (t *Tier) Trim(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	for e, ok := t.ledger.EvictOver(); ok; e, ok = t.ledger.EvictOver() {
		v := t.victim(e)
		out = append(out, v.Key)
		v.Block.Release()
	}
	if t.arena.Stats().UsedBytes+n <= t.high {
		return out, ctx.Err()
	}
	for ctx.Err() == nil && t.arena.Stats().UsedBytes+n > t.goal() {
		v, ok := t.evict()
		if !ok {
			return out, fmt.Errorf("cpu: trim: everything left is protected: %w", tier.ErrNoSpace)
		}
		out = append(out, v.Key)
		v.Block.Release()
	}
	return out, ctx.Err()
}

// Publish implements tier.Hot.
func (t *Tier) Publish(refs []tier.Ref, dirty, held bool) {
	var ids [batch]ledger.ID
	for left := refs; len(left) > 0; {
		part := left[:min(batch, len(left))]
		for i, r := range part {
			if !r.Block.Sealed() {
				panic("cpu: a block is published before it is sealed")
			}
			ids[i] = r.ID
			t.payloadBytes.Add(int64(r.Block.Len()))
			t.putBytes.Add(uint64(r.Block.Len()))
			if held {
				r.Block.Retain()
			}
		}
		t.publish(ids[:len(part)], dirty, held)
		left = left[len(part):]
	}
	t.puts.Add(uint64(len(refs)))
	if !held {
		clear(refs)
	}
}

func (t *Tier) publish(ids []ledger.ID, dirty, held bool) {
	if !held {
		t.ledger.Publish(ids, dirty)
		return
	}
	if _, err := t.ledger.PublishHeld(ledger.Daemon, ledger.IO, ids, dirty); err != nil {
		panic("cpu: holds for I/O have no budget, yet: " + err.Error())
	}
}

// Abort implements tier.Hot.
func (t *Tier) Abort(refs []tier.Ref) {
	for i, r := range refs {
		t.ledger.Abort(r.ID)
		r.Block.Release()
		refs[i] = tier.Ref{}
	}
}
