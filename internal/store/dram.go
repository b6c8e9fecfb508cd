package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// dram is the hot tier with the chunks in flight to it and in transit from it:
// every part of a Store works with it.
type dram struct {
	hot           tier.Hot
	room          int64 // in bytes
	levels        *levels
	index         *tierIndex
	promotions    promotions
	transit       transit
	local         atomic.Pointer[key.SpaceID] // see KeepLocal
	ages          *stale.Book
	distrusted    *stale.Distrusted
	shrink        chan struct{} // capacity 1: it may be above its high watermark
	demotingBytes atomic.Int64  // of its victims that are still to be written
	turns         turns
	cleared       cleared
	staying       atomic.Bool // victims go back to DRAM: see Stay
	count         counters
	absences      *absences
	heat          *explain.Heat // of the ends of prompts
	log           zerolog.Logger
}

func newDRAM(ls *levels, log zerolog.Logger) *dram {
	d := &dram{
		hot: ls.hot, room: ls.hot.Stats().CapacityBytes, levels: ls, log: log, shrink: make(chan struct{}, 1),
	}
	d.turns.line, d.turns.mu.clients = make(place, 1), make(map[ledger.Owner]*client)
	d.heat = explain.NewHeat()
	chunks := ledger.Spare(ls.hot.Ledger())
	d.absences = &absences{log: explain.NewDeparted(min(explain.DefaultEntries, chunks)), levels: ls}
	d.index = &tierIndex{levels: ls, holds: d.holds, absences: d.absences}
	d.index.mu.tree, d.index.mu.bounds = index.NewTree(), index.NewBoundaries(chunks)
	return d
}

// has reports whether k is in DRAM, or in transit from there. A chunk
// between the two is not told; see tier.Shrinker.HandedOver.
func (d *dram) has(k key.Key) bool { return d.hot.Has(k) || d.transit.has(k) }

// holds reports whether a bounded tier has k; DRAM also the chunks in transit.
func (d *dram) holds(p tier.Place, k key.Key) bool {
	if p == tier.CPU {
		return d.has(k)
	}
	l := d.levels.at[p]
	return l != nil && l.Resident != nil && l.Resident.Has(k)
}

// keepWatermark keeps eviction off the path of a put: it runs ahead of it.
func (d *dram) keepWatermark(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.shrink:
			d.hot.Shrink(ctx, d.leaving(), d.demote)
		}
	}
}

// filled wakes keepWatermark if there is something for it to do: waking a
// goroutine costs more than most commits.
func (d *dram) filled() {
	if !d.hot.Crowded(d.leaving()) {
		return
	}
	base.Poke(d.shrink)
}

// demote takes over a victim of DRAM: it is demoted first if no tier below has it,
// and true says that its memory stays in use until it has.
func (d *dram) demote(v tier.Victim) bool {
	d.absences.log.Leaving(uint8(tier.CPU), uint64(v.Size))
	taken := v.Dirty && d.demoteDirty(v)
	if taken {
		d.index.insert(tier.CPU, []tier.Record{v.Record}) // the index may have been told that it is gone
	} else {
		d.index.sync(tier.CPU, v.Key)
		d.refund(v)
		v.Block.Release()
	}
	return taken
}

// demoteDirty gives a victim to the nearest writer that takes it; from there it is
// forwarded. It is charged once, however many tiers it goes to.
func (d *dram) demoteDirty(v tier.Victim) bool {
	for _, l := range d.levels.below {
		if w := l.writer; w.takes(v.Key.Space) && !w.has(v.Key, v.Sum) && w.demote(v) {
			return true
		}
	}
	return false
}

// readmitTries bounds how many chunks go for one that comes back from transit: for itself
// and its parent's entry, and what others take meanwhile.
const readmitTries = 4

// readmit makes a chunk in transit resident again, in the block it has, and
// reports whether it is. It is written all the same. Where DRAM has as many entries as
// it may have, others go for it, outside the lock of the promotions.
func (d *dram) readmit(k key.Key) (back bool) {
	if !d.transit.has(k) {
		if !d.index.has(tier.CPU, k) {
			return false
		}
		d.hot.HandedOver() // perhaps just between the ledger and its writer
	}
	var r tier.Record
	for range readmitTries {
		var err error
		d.promotions.readmit(k, func() { r, back, err = d.takeIn(k) })
		if !errors.Is(err, ledger.ErrFull) || !d.hot.EvictOne(d.demote) {
			break
		}
	}
	if back {
		d.index.insert(tier.CPU, []tier.Record{r})
		d.filled()
	}
	return back
}

// takeIn publishes a chunk in transit. A deletion that has ended by now has
// recalled it, and one that begins later finds it in DRAM.
func (d *dram) takeIn(k key.Key) (r tier.Record, back bool, err error) {
	r, b, ok := d.transit.take(k)
	if !ok {
		return r, false, nil
	}
	defer b.Release()
	ref, st, err := d.hot.Reserve(context.Background(), tier.Fill{Record: r, Owner: ledger.Daemon, Class: ledger.IO, Block: b})
	if err == nil && st == ledger.Absent {
		d.hot.Publish([]tier.Ref{ref}, true, false)
	}
	return r, err == nil && st != ledger.Filling, err
}

// endTransit ends a demotion and frees its memory.
func (d *dram) endTransit(t task) {
	d.transit.end(t.rec.Key, t.life)
	d.index.sync(tier.CPU, t.rec.Key)
	n := occupied(t.ref.Block)
	t.ref.Block.Release()
	d.uncharge(n)
	d.filled() // it may have come back, so that its room is not free
}

// refund gives back the charge of a victim that no writer took.
func (d *dram) refund(v tier.Victim) {
	if v.Charged {
		d.hot.Ledger().Uncharge(ledger.Daemon, ledger.Unwritten, occupied(v.Block))
	}
}

// uncharge gives back what a victim was charged.
func (d *dram) uncharge(n int64) {
	d.demotingBytes.Add(-n) // first: a store that the ledger wakes looks at it
	d.hot.Ledger().Uncharge(ledger.Daemon, ledger.Unwritten, n)
}

// hold holds a resident chunk for the daemon; ok is false if there is none, or it is
// over.
func (d *dram) hold(k key.Key) (ref tier.Ref, ok bool) {
	if d.ages.Over(k) {
		return ref, false
	}
	var refs [1]tier.Ref
	ks := [1]key.Key{k}
	n, _ := d.hot.Hold(ledger.Daemon, ledger.IO, ks[:], refs[:])
	if n == 0 && d.readmit(k) {
		n, _ = d.hot.Hold(ledger.Daemon, ledger.IO, ks[:], refs[:])
	}
	return refs[0], n == 1
}

// unhold ends a hold of the daemon.
func (d *dram) unhold(ref tier.Ref) { d.hot.Release(ledger.Daemon, ledger.IO, []tier.Ref{ref}) }

// clean marks the chunk in b as written, if DRAM has it in that block: a victim
// may have come back.
func (d *dram) clean(k key.Key, ref tier.Ref) {
	var refs [1]tier.Ref
	ks := [1]key.Key{k}
	if n, _ := d.hot.Hold(ledger.Daemon, ledger.IO, ks[:], refs[:]); n == 0 {
		return
	}
	if refs[0].Block == ref.Block {
		d.hot.Ledger().SetDirty(refs[0].ID, false)
	}
	d.unhold(refs[0])
}

// dropCorrupt forgets a chunk whose bytes in DRAM are wrong. Readers keep the
// block until they let go.
func (d *dram) dropCorrupt(ctx context.Context, k key.Key) {
	d.count.corrupt.Add(1)
	if err := d.hot.Delete(ctx, []key.Key{k}); err != nil {
		d.log.Error().Err(err).Msg("a chunk with a wrong checksum could not be dropped from DRAM")
	}
	d.transit.remove(k)
	d.index.syncGone(tier.CPU, explain.Corrupt, k)
}

// isBelow reports whether a tier below DRAM has k. A bounded one is asked
// itself, for the index may be behind it.
func (d *dram) isBelow(k key.Key) bool {
	if d.index.where(k)&^tier.Of(tier.CPU) != 0 {
		return true
	}
	for _, l := range d.levels.below {
		if d.holds(l.place, k) {
			return true
		}
	}
	return false
}

// writing reports whether chunks are on their way to the tiers below. Chunks
// that wait until DRAM evicts them set out now: the caller needs the room
// that they take by what stands on them.
func (d *dram) writing() (busy bool) {
	for _, l := range d.levels.below {
		busy = l.writer.setOut() || busy
	}
	return busy
}

// reach is the tiers that the chunks of a space may be in.
func (d *dram) reach(id key.SpaceID) tier.Set {
	if !d.isLocal(id) {
		return tier.All
	}
	reach := tier.All
	for _, l := range d.levels.below {
		if l.shared() {
			reach &^= tier.Of(l.place)
		}
	}
	return reach
}

// nearest is the writer that takes chunks of a space first; nil if they stay in
// DRAM.
func (d *dram) nearest(id key.SpaceID) *writer {
	reach := d.reach(id)
	for _, l := range d.levels.below {
		if reach.Has(l.place) {
			return l.writer
		}
	}
	return nil
}

// scanned is an error while a tier of a set may have what the index does not know.
func (d *dram) scanned(in tier.Set) error {
	if p, ok := d.levels.nearestOf(d.unscanned(in)); ok {
		return fmt.Errorf("the %s tier is still being scanned; try again when it is ready: %w", p, tier.ErrOff)
	}
	return nil
}

// unscanned is the tiers of a set of which no scan has come to its end yet.
func (d *dram) unscanned(in tier.Set) (out tier.Set) {
	for _, l := range d.levels.below {
		if in.Has(l.place) && l.scan.unknown.Load() {
			out |= tier.Of(l.place)
		}
	}
	return out
}

// scanning is the tiers that are being scanned for the first time.
func (d *dram) scanning() (in tier.Set) {
	for _, l := range d.levels.below {
		if l.scan.running.Load() {
			in |= tier.Of(l.place)
		}
	}
	return in
}

// KeepLocal keeps a space out of the tiers that are shared with others: nothing of it is written or
// looked for there, nor deleted. It is for keys whose payload may change, which
// a tier that never overwrites, and that others use too, cannot follow. Call it
// before anything of the space is stored; there is one such space.
func (d *dram) KeepLocal(id key.SpaceID) { d.local.Store(&id) }

func (d *dram) isLocal(id key.SpaceID) bool {
	local := d.local.Load()
	return local != nil && *local == id
}
