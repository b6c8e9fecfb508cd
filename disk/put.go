package disk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Put stores e and returns when its record is in Badger, which survives a
// kill of the process. It borrows e.Block for the call and keeps a reference
// of its own until the device has let go of it, which after an expired ctx
// may be later. A Put under way of the same key is waited for. ErrNoSpace asks
// for a Trim; nothing was written then. Where only time makes room it is ErrOff.
func (t *Tier) Put(ctx context.Context, e tier.Entry) error {
	i := t.now.Load()
	if err := i.notNow(i.put(ctx, e)); err != nil {
		return t.failed(fmt.Sprintf("put %x", e.Key.Hash), err)
	}
	return nil
}

// notNow makes of a want of room that a Trim does not end, and time does, what writers try
// again: until recovery has ended the old segments take nothing, and until its readers have
// left a removed entry keeps its key.
func (t *instance) notNow(err error) error {
	if errors.Is(err, tier.ErrNoSpace) && (t.scan.active.Load() || errors.Is(err, ledger.ErrBusy)) {
		return fmt.Errorf("%w for now: %v", tier.ErrOff, err) //nolint:errorlint // else it would still ask for a Trim
	}
	return err
}

func (t *instance) put(ctx context.Context, e tier.Entry) error {
	if err := t.usable(ctx); err != nil {
		return err
	}
	if err := t.o.takes(e); err != nil {
		return err
	}
	if known, err := t.unscanned(ctx, e.Key); known != nil || err != nil {
		return err
	}
	var tried []*volume // and found in trouble
	for {
		id, others, err := t.fills.begin(e)
		switch {
		case err != nil:
			return err
		case others != nil:
			if err := awaitFill(ctx, others, t.ended); err != nil {
				return err
			} // resident now, or the other one failed
		case id == 0:
			return nil // there already
		default:
			v, err := t.store(ctx, id, e, tried)
			if v == nil || !blockio.IsFault(err) {
				return err
			}
			if tried = append(tried, v); errors.Is(err, blockio.ErrHung) || len(tried) == len(t.volumes) {
				return t.volumes.blame(v, true, err)
			} // else elsewhere
		}
	}
}

// takes is an error for an entry that no segment can take.
func (o *Options) takes(e tier.Entry) error {
	if n := e.Block.Len(); n == 0 || uint32(n) != e.Size || !e.Block.Sealed() {
		return fmt.Errorf("block of %d bytes (sealed: %t) for a payload of %d", n, e.Block.Sealed(), e.Size)
	}
	if e.Size > arena.MaxPayload || extentBytes(int64(e.Size)) > o.SegmentBytes {
		return fmt.Errorf("%d bytes in segments of %d: %w", e.Size, o.SegmentBytes, tier.ErrTooLarge)
	}
	return nil
}

// writing is one Put on its way: to the device, then to the database, then
// into the ledger. It goes on to the end when its caller has given up.
type writing struct {
	blockio.Transfer
	t     *instance
	id    ledger.ID
	loc   location
	entry database.Entry
	seg   *segment
	fails uint64 // syncs of seg that had failed before
	done  chan error
}

// store returns the volume that it wrote to, if it came to that. Those that
// were tried before are not tried again.
func (t *instance) store(ctx context.Context, id ledger.ID, e tier.Entry, tried []*volume) (*volume, error) {
	at := now()
	w := &writing{t: t, id: id, done: make(chan error, 1)}
	w.entry = database.Entry{
		Key: e.Key, Parent: e.Parent, Depth: e.Depth, Tokens: e.Tokens, Size: e.Size, Sum: e.Block.Sum(),
		Created: at, Used: at,
	}
	if s := t.o.Ages.Of(e.Key); s.HasTTL() {
		w.entry.Created, w.entry.Expires = s.Stored, s.Expires
	}
	w.Block = e.Block
	inline := int64(e.Size) <= t.o.InlineMax
	if t.budget.full(metadata.HeldBytes(int64(e.Size), inline)) {
		w.giveUp()
		return nil, metadata.ErrBudget
	}
	if inline {
		return nil, w.storeInline(ctx)
	}
	g, err := w.place(ctx, extentBytes(int64(e.Size)), tried)
	if err != nil {
		w.giveUp()
		return nil, err
	}
	seg := g.seg
	w.seg, w.loc = seg, locate(g.extent)
	w.fails = seg.syncState.fails.Load()
	w.entry.Extent, w.entry.Seq = g.extent, g.seq
	w.Head = newPage()
	t.seal.Seal(w.Head, &database.Header{Entry: w.entry, Void: g.void})
	w.File, w.Off, w.Buf = seg.file, w.loc.payload(), e.Block.Padded()
	w.Write, w.End = true, w
	t.ledger.SetValue(id, ledger.Value{A: uint64(w.loc), B: w.entry.Sum})
	if err := seg.volume.dev.Submit(&w.Transfer); err != nil {
		freePage(w.Head)
		w.giveUp()
		return nil, err
	}
	return seg.volume, t.wait(ctx, w.done, &w.Transfer)
}

func (w *writing) storeInline(ctx context.Context) error {
	t := w.t
	w.entry.Inline, w.loc, w.entry.Seq = true, inlined, t.segments.seq.Add(1)
	t.ledger.SetValue(w.id, ledger.Value{A: uint64(inlined), B: w.entry.Sum})
	w.Block.Retain() // until committed
	if err := t.commits.Add(w); err != nil {
		w.Block.Release()
		w.giveUp()
		return err
	}
	return t.wait(ctx, w.done, nil)
}

// place finds an extent of n bytes, in a new segment if need be, in the first volume that
// has one, and the pass to write there.
func (w *writing) place(ctx context.Context, n int64, tried []*volume) (grant, error) {
	t := w.t
	err := tier.ErrNoSpace
	order, pass := t.headroom.order()
	for _, v := range order {
		w.Pass, pass = pass, blockio.Pass{}
		if slices.Contains(tried, v) {
			w.Pass.Return()
			continue
		}
		if w.Pass == (blockio.Pass{}) {
			w.Pass = v.dev.Writing.Insist()
		}
		g, grown := w.placeIn(ctx, v, n)
		if grown == nil {
			return g, nil
		}
		w.Pass.End(grown)
		if ctx.Err() != nil || errors.Is(grown, tier.ErrClosed) {
			return grant{}, grown
		}
		if blockio.IsFault(grown) {
			err = t.volumes.blame(v, true, grown)
		}
	}
	return grant{}, err
}

// placeIn is place in one volume; the error is that of making a segment.
func (w *writing) placeIn(ctx context.Context, v *volume, n int64) (grant, error) {
	for {
		if g, ok := w.t.segments.alloc(v, n); ok {
			return g, nil
		}
		if err := w.grow(ctx, v, n); err != nil {
			return grant{}, err
		}
	}
}

// grow adds a segment to v that holds n bytes, unless another Put just has.
func (w *writing) grow(ctx context.Context, v *volume, n int64) error {
	t := w.t
	if err := v.fs.growing.take(ctx, t.ended); err != nil {
		return err
	}
	if t.segments.usageOf(v).largest >= n {
		v.fs.growing.leave()
		return nil
	}
	if !t.segments.canGrow(n, t.headroom.growthIn(v, t.segments.usage().files)) {
		v.fs.growing.leave()
		return tier.ErrNoSpace
	}
	return t.call(ctx, v.dev, func() error {
		if err := v.fs.look(); err != nil {
			return err
		}
		return t.segments.grow(v, n, func(files int64) int64 { return t.headroom.growthIn(v, files) })
	}, v.fs.growing.leave)
}

// Finish continues with the record, now that the payload is in its extent.
func (w *writing) Finish(err error) {
	freePage(w.Head)
	if err == nil {
		w.seg.syncState.wrote(w.entry.Seq)
		w.t.segments.written.Add(extentBytes(int64(w.entry.Size)))
		err = w.t.commits.Add(w)
	}
	if err != nil {
		w.fail(err)
	}
}

func (w *writing) Apply(b *metadata.Batch) error {
	if w.entry.Inline {
		return b.Put(&w.entry, w.Block.Bytes())
	}
	return b.Put(&w.entry, nil)
}

func (w *writing) Committed(err error) {
	if w.entry.Inline {
		w.Block.Release()
	}
	if err == nil && w.seg != nil && w.seg.syncState.fails.Load() != w.fails { // a sync of it failed meanwhile
		err = fmt.Errorf("%w: %w", metadata.ErrUncertain, errUnverified)
	}
	if err != nil {
		if errors.Is(err, metadata.ErrUncertain) { // else a restart might bring it back, deleted or not
			w.t.commits.Requeue((&removal{t: w.t, keys: []key.Key{w.entry.Key}}).orNothing())
		}
		w.fail(err)
		return
	}
	w.t.fills.end(w.entry.Key, func() { w.t.ledger.Publish([]ledger.ID{w.id}, false) })
	w.t.scan.addStored(w.entry.Key)
	w.t.count.puts.Add(1)
	w.t.count.putBytes.Add(uint64(w.entry.Size))
	w.t.payload.Add(int64(w.entry.Size))
	w.t.budget.live.Add(metadata.HeldBytes(int64(w.entry.Size), w.entry.Inline))
	w.done <- nil
}

func (w *writing) fail(err error) {
	if !errors.Is(err, tier.ErrClosed) && !errors.Is(err, context.Canceled) {
		w.t.count.putErrors.Add(1)
	}
	w.giveUp()
	w.done <- err
}

// giveUp undoes begin and place.
func (w *writing) giveUp() {
	if w.seg != nil {
		w.t.segments.free(w.loc, int64(w.entry.Size))
	}
	w.t.fills.end(w.entry.Key, func() { w.t.ledger.Abort(w.id) })
}

// fills are the Puts under way: one of a key at a time.
type fills struct {
	ledger *ledger.Ledger

	mu struct {
		sync.Mutex
		ended map[key.Key]chan struct{} // closed when the Put of a key has ended
	}
}

// begin makes the caller the filler of e's key (id), or returns a channel
// that is closed when the Put that is has ended, or neither: it is resident.
func (f *fills) begin(e tier.Entry) (id ledger.ID, others <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, state, err := f.ledger.Begin(ledger.Daemon, ledger.IO, e.Key, e.Parent, e.Size)
	switch {
	case err != nil || state == ledger.Resident:
		return 0, nil, tier.Refusal(err)
	case state == ledger.Filling:
		return 0, f.mu.ended[e.Key], nil
	}
	if f.mu.ended == nil {
		f.mu.ended = make(map[key.Key]chan struct{})
	}
	f.mu.ended[e.Key] = make(chan struct{})
	return id, nil, nil
}

// end runs fn, which publishes or aborts k in the ledger, and wakes the calls that
// wait for that. Both under the lock: a Put may begin as soon as fn is over.
func (f *fills) end(k key.Key, fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
	close(f.mu.ended[k])
	delete(f.mu.ended, k)
}

// of is closed when the Put of k has ended; nil if none is under way.
func (f *fills) of(k key.Key) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.ended[k]
}

// wait returns when the Puts under way of ks have ended; nil: all Puts.
func (f *fills) wait(ctx context.Context, ks []key.Key, closed <-chan struct{}) error {
	f.mu.Lock()
	if ks == nil {
		ks = slices.Collect(maps.Keys(f.mu.ended))
	}
	var under []chan struct{}
	for _, k := range ks {
		if ended := f.mu.ended[k]; ended != nil {
			under = append(under, ended)
		}
	}
	f.mu.Unlock()
	for _, ended := range under {
		if err := awaitFill(ctx, ended, closed); err != nil {
			return err
		}
	}
	return nil
}

// awaitFill returns when a Put has ended.
func awaitFill(ctx context.Context, ended, closed <-chan struct{}) error {
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-closed:
		return tier.ErrClosed
	}
}
