package cpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Options of a Tier. The arena and the ledger belong to the tier from then on.
type Options struct {
	Arena  *arena.Arena
	Ledger *ledger.Ledger
	// Manifest, if any, has each payload noted, so that the next process finds it in the
	// arena; see Resume. The tier writes it, and it stays the caller's, whose NoteFrees has
	// Clear called.
	Manifest *Manifest
	// HasTTL, if any, says that a chunk has a TTL: it is not to outlive the
	// process.
	HasTTL func(key.Key) bool
	// Trim starts above HighWatermark and goes on down to LowWatermark,
	// both shares of the populated part of the arena; 0 is tier.HighWatermark and
	// tier.LowWatermark.
	HighWatermark, LowWatermark float64
}

// Tier is the DRAM tier. It implements tier.Hot and is safe for concurrent use.
type Tier struct {
	arena  *arena.Arena
	ledger *ledger.Ledger
	notes  notes
	marks  watermarks
	closed atomic.Bool

	// deleting is read-locked from before the ledger grants a hold until the
	// holder has its reference of the block, because Delete, unlike an
	// eviction, also takes entries that are held.
	deleting sync.RWMutex

	// handing is read-locked from before a victim leaves the ledger until it
	// was handed over, and locked by a caller that waits for that.
	handing sync.RWMutex

	waiting atomic.Int64 // fills of the daemon that wait for room

	wrong atomic.Uint64 // payloads that Resume has left unverified
	guard guard         // of what it has taken up

	payloadBytes atomic.Int64

	aside, asideBytes atomic.Int64 // entries put aside; see ledger.NoteAside
	emptied           atomic.Int64 // for so many of mistrust

	gets, getBytes, puts, putBytes, evictions, evictedBytes, refused, moved, movedBytes atomic.Uint64
}

var _ tier.Hot = (*Tier)(nil)

// New makes a tier over an arena and a ledger.
func New(o Options) *Tier {
	t := &Tier{arena: o.Arena, ledger: o.Ledger, notes: notes{o.Manifest, o.HasTTL}}
	t.marks = watermarks{cmp.Or(o.HighWatermark, tier.HighWatermark), cmp.Or(o.LowWatermark, tier.LowWatermark)}
	t.ledger.NoteAside(func(e ledger.Entry) { // which has the reference of its block for good
		t.notes.leave(t.block(e))
		t.payloadBytes.Add(-int64(e.Size))
		t.aside.Add(1)
		t.asideBytes.Add(occupied(e.Size))
	})
	return t
}

// Name returns "cpu".
func (t *Tier) Name() string { return "cpu" }

// Ledger implements tier.Bounded.
func (t *Tier) Ledger() *ledger.Ledger { return t.ledger }

// Contains implements tier.Tier.
func (t *Tier) Contains(ctx context.Context, ks []key.Key, have []bool) error {
	if t.closed.Load() {
		return fmt.Errorf("cpu: contains: %w", tier.ErrClosed)
	}
	t.ledger.Lookup(ks, have)
	return ctx.Err()
}

// Has implements tier.Resident.
func (t *Tier) Has(k key.Key) bool {
	_, st := t.ledger.Find(k)
	return st == ledger.Resident
}

// Touch implements tier.Resident.
func (t *Tier) Touch(ks []key.Key) { t.ledger.Touch(ks) }

// Get returns the resident block itself; nothing is copied and a is not used.
func (t *Tier) Get(ctx context.Context, k key.Key, _ tier.Allocator) (arena.Block, error) {
	if err := t.usable(ctx); err != nil {
		return arena.Block{}, fmt.Errorf("cpu: get: %w", err)
	}
	var refs [1]tier.Ref
	ks := [1]key.Key{k}
	if n, _ := t.Hold(ledger.Daemon, ledger.IO, ks[:], refs[:]); n == 0 {
		return arena.Block{}, fmt.Errorf("cpu: get: %w", tier.ErrNotFound)
	}
	b := refs[0].Block.Retain()
	t.Release(ledger.Daemon, ledger.IO, refs[:])
	t.gets.Add(1)
	t.getBytes.Add(uint64(b.Len()))
	return b, nil
}

// Put makes a sealed block of this tier's own arena resident. The block is
// shared, not copied. It never evicts: the bytes are in the arena already.
func (t *Tier) Put(ctx context.Context, e tier.Entry) error {
	if err := t.usable(ctx); err != nil {
		return fmt.Errorf("cpu: put: %w", err)
	}
	if !e.Block.Sealed() {
		return errors.New("cpu: put: the block is not sealed; seal it before it is stored")
	}
	id, st, err := t.ledger.Begin(ledger.Daemon, ledger.IO, e.Key, e.Parent, e.Size)
	if err != nil {
		return fmt.Errorf("cpu: put: %w", tier.Refusal(err))
	}
	if st != ledger.Absent {
		return nil
	}
	t.deleting.RLock() // the block may still be that of an entry that is being removed
	t.keep(id, e.Block, e.Record)
	t.deleting.RUnlock()
	e.Block.Retain()
	t.payloadBytes.Add(int64(e.Size))
	t.notes.publish(t, []ledger.ID{id})
	t.ledger.Publish([]ledger.ID{id}, false)
	t.puts.Add(1)
	t.putBytes.Add(uint64(e.Size))
	return nil
}

// Delete implements tier.Tier. Bytes under a reader live until it lets go.
func (t *Tier) Delete(ctx context.Context, ks []key.Key) error {
	if err := t.usable(ctx); err != nil {
		return fmt.Errorf("cpu: delete: %w", err)
	}
	for len(ks) > 0 {
		part := ks[:min(batch, len(ks))]
		t.remove(part)
		ks = ks[len(part):]
	}
	return nil
}

func (t *Tier) remove(ks []key.Key) {
	var scratch [batch]ledger.Entry
	var blocks [batch]arena.Block
	removed := scratch[:0]
	t.deleting.Lock()
	for _, k := range ks {
		if e, ok := t.ledger.Remove(k); ok {
			b := t.block(e)
			t.notes.leave(b) // before a chunk can be stored again under the key
			blocks[len(removed)] = b
			removed = append(removed, e)
		}
	}
	t.deleting.Unlock()
	for i, e := range removed {
		t.ledger.Free(e.ID)
		t.payloadBytes.Add(-int64(e.Size))
		t.letGo(blocks[i])
	}
}

// Close implements tier.Tier. It empties the tier; entries that are still held
// stay. The arena stays open: it belongs to the caller of New. So does a manifest, which
// is to be finished first where another process goes on.
func (t *Tier) Close() error {
	t.closed.Store(true)
	t.guard.end()
	ledger.Drop(t.ledger, func(e *ledger.Entry) { t.block(*e).Release() })
	return nil
}

// Stats implements tier.Tier.
func (t *Tier) Stats() tier.Stats {
	l, a := t.ledger.Stats(), t.arena.Stats()
	_, aside := t.putAside()
	return tier.Stats{
		Entries:          int64(l.Entries),
		PayloadBytes:     t.payloadBytes.Load(),
		UsedBytes:        a.UsedBytes,
		CapacityBytes:    a.CapacityBytes,
		LargestFreeBytes: a.LargestFreeBytes,
		Gets:             t.gets.Load(), GetBytes: t.getBytes.Load(),
		Puts: t.puts.Load(), PutBytes: t.putBytes.Load(),
		Evictions: t.evictions.Load(), EvictedBytes: t.evictedBytes.Load(),
		EvictedUnused: l.EvictedUnused, EvictedUnusedBytes: l.EvictedUnusedBytes,
		Policy: t.ledger.PolicyName(), Steps: l.Steps, Quotas: t.ledger.Quotas(),
		Counters: map[string]uint64{
			"protected_bytes": uint64(l.ProtectedBytes),
			"refused":         t.refused.Load(),
			"moved":           t.moved.Load(),
			"moved_bytes":     t.movedBytes.Load(),
			"aside_bytes":     uint64(aside),
		},
	}
}

func (t *Tier) usable(ctx context.Context) error {
	if t.closed.Load() {
		return tier.ErrClosed
	}
	return ctx.Err()
}

// countRefused counts a fill that has no room. One that must wait may get some yet.
func countRefused(t *Tier, err error) {
	if !errors.Is(err, tier.ErrMustWait) {
		t.refused.Add(1)
	}
}

func (t *Tier) block(e ledger.Entry) arena.Block {
	return t.arena.Block(uint32(e.Value.A), uint32(e.ID))
}

// occupied is what a payload of n bytes takes in the arena.
func occupied(n uint32) int64 { return arena.RoundUp(int64(n)) }

// watermarks are shares of the populated part of the arena.
type watermarks struct{ high, low float64 }

// high is the high watermark in bytes.
func (t *Tier) high() int64 { return int64(t.marks.high * float64(t.arena.Populated())) }

// goal is the used bytes at which evictions end: the low watermark. A policy
// that plans compares each new chunk with the one that would go for it, so that
// none is evicted ahead of time, below the high watermark.
func (t *Tier) goal() int64 {
	if t.ledger.Planning().Plans() {
		return t.high()
	}
	return int64(t.marks.low * float64(t.arena.Populated()))
}

// Room implements tier.Bounded.
func (t *Tier) Room(size uint32) int {
	bytes := (t.high() - t.arena.Stats().UsedBytes) / occupied(max(size, 1))
	return int(min(math.MaxInt-1, bytes, int64(ledger.FreeEntries(t.ledger))))
}

// keep notes in both books that a block is the payload of a fill.
func (t *Tier) keep(id ledger.ID, b arena.Block, r tier.Record) {
	b.SetTag(uint32(id))
	t.ledger.SetValue(id, tier.HotValue(b, r))
}

// move puts a copy in the place of a block whose entry is not held; see
// arena.Compact. A later hold of the entry gets the copy; a reference of the
// block itself that was taken before, such as that of Get, keeps the block.
func (t *Tier) move(from, to arena.Block) bool {
	n := to.Len() // afterwards it is the entry's, and may be gone at once
	if !t.notes.exchange(t, from, to) {
		return false
	}
	t.moved.Add(1)
	t.movedBytes.Add(uint64(n))
	return true
}
