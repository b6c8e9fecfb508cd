package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/record"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Put stores e and returns when its record is in Badger, which survives a
// kill of the process. It borrows e.Block for the call and keeps a reference
// of its own until the device has let go of it, which after an expired ctx
// may be later. A Put under way of the same key is waited for. ErrNoSpace asks
// for a Trim; nothing was written then.
func (t *Tier) Put(ctx context.Context, e tier.Entry) error {
	if err := t.put(ctx, e); err != nil {
		return fmt.Errorf("disk: put %x: %w", e.Key.Hash, err)
	}
	return nil
}

func (t *Tier) put(ctx context.Context, e tier.Entry) error {
	if err := t.usable(ctx); err != nil {
		return err
	}
	if n := e.Block.Len(); n == 0 || uint32(n) != e.Size || !e.Block.Sealed() {
		return fmt.Errorf("block of %d bytes (sealed: %t) for a payload of %d", n, e.Block.Sealed(), e.Size)
	}
	if e.Size > arena.MaxPayload || extentBytes(int64(e.Size)) > t.o.SegmentBytes {
		return fmt.Errorf("%d bytes in segments of %d: %w", e.Size, t.o.SegmentBytes, tier.ErrTooLarge)
	}
	if known, err := t.unscanned(ctx, e.Key, nil); known || err != nil {
		return err
	}
	var tried []*volume // and found in trouble
	for {
		id, others, err := t.begin(e)
		if err != nil {
			return err
		}
		if others == nil && id == 0 {
			return nil // there already
		}
		if others == nil {
			v, err := t.store(ctx, id, e, tried)
			if v == nil || !isTrouble(err) {
				return err
			}
			if tried = append(tried, v); errors.Is(err, errHung) || len(tried) == len(t.volumes) {
				return t.blame(v, true, err)
			}
			continue // elsewhere
		}
		select {
		case <-others: // resident now, or the other one failed
		case <-ctx.Done():
			return ctx.Err()
		case <-t.ended:
			return tier.ErrClosed
		}
	}
}

// begin makes the caller the filler of e's key (id), or returns a channel
// that is closed when whoever is it has ended, or neither: it is resident.
func (t *Tier) begin(e tier.Entry) (id ledger.ID, others <-chan struct{}, err error) {
	t.fills.Lock()
	defer t.fills.Unlock()
	id, state, err := t.ledger.Begin(ledger.Daemon, ledger.IO, e.Key, e.Parent, e.Size)
	switch {
	case err != nil || state == ledger.Resident:
		return 0, nil, tier.Refusal(err)
	case state == ledger.Filling:
		return 0, t.fills.under[e.Key], nil
	}
	t.fills.under[e.Key] = make(chan struct{})
	return id, nil, nil
}

// endFill runs end, which publishes or aborts k in the ledger, and wakes who
// waits for that. Both under the lock: a Put may begin as soon as end is over.
func (t *Tier) endFill(k key.Key, end func()) {
	t.fills.Lock()
	defer t.fills.Unlock()
	end()
	close(t.fills.under[k])
	delete(t.fills.under, k)
}

// writing is one Put on its way: to the device, then to the database, then
// into the ledger. It goes on to the end when its caller has given up.
type writing struct {
	transfer
	t     *Tier
	id    ledger.ID
	loc   location
	entry record.Entry
	seg   *segment
	done  chan error

	// Badger keeps what it is given until the commit is over.
	key, payloadKey [record.KeyBytes]byte
	value           [record.EntryBytes]byte
}

// store returns the volume that it wrote to, if it came to that. Those that
// were tried before are not tried again.
func (t *Tier) store(ctx context.Context, id ledger.ID, e tier.Entry, tried []*volume) (*volume, error) {
	at := now()
	w := &writing{t: t, id: id, done: make(chan error, 1)}
	w.entry = record.Entry{
		Key: e.Key, Parent: e.Parent, Depth: e.Depth, Tokens: e.Tokens, Size: e.Size, Sum: e.Block.Sum(),
		Created: at, Used: at,
	}
	w.block = e.Block
	w.key = record.EntryKey(e.Key)
	inline := int64(e.Size) <= t.o.InlineMax
	if t.share.full(held(int64(e.Size), inline)) {
		w.giveUp()
		return nil, errShare
	}
	if inline {
		return nil, t.storeInline(ctx, w)
	}
	g, err := t.place(ctx, extentBytes(int64(e.Size)), tried)
	if err != nil {
		w.giveUp()
		return nil, err
	}
	seg := g.seg
	w.seg, w.loc = seg, locate(g.extent, true)
	w.entry.Extent, w.entry.Headed, w.entry.Seq = g.extent, true, g.seq
	w.head = t.newPage()
	t.seal.Seal(w.head, &record.Header{Entry: w.entry, Void: g.void})
	w.file, w.off, w.buf = seg.file, w.loc.payload(), e.Block.Padded()
	w.write, w.end = true, w
	t.ledger.SetValue(id, ledger.Value{A: uint64(w.loc), B: w.entry.Sum})
	if err := seg.volume.dev.submit(&w.transfer); err != nil {
		t.freePage(w.head)
		w.giveUp()
		return nil, err
	}
	return seg.volume, t.wait(ctx, w.done, &w.transfer)
}

func (t *Tier) storeInline(ctx context.Context, w *writing) error {
	w.entry.Inline, w.loc, w.entry.Seq = true, inlined, t.segments.seq.Add(1)
	w.payloadKey = record.PayloadKey(w.entry.Key)
	t.ledger.SetValue(w.id, ledger.Value{A: uint64(inlined), B: w.entry.Sum})
	w.block.Retain() // until committed
	if err := t.commits.add(w); err != nil {
		w.block.Release()
		w.giveUp()
		return err
	}
	return t.wait(ctx, w.done, nil)
}

// place finds an extent of n bytes, in a new segment if need be, in the first volume that
// has one.
func (t *Tier) place(ctx context.Context, n int64, tried []*volume) (grant, error) {
	err := tier.ErrNoSpace
	for _, v := range t.order() {
		if slices.Contains(tried, v) {
			continue
		}
		for {
			if g, ok := t.segments.alloc(v, n); ok {
				return g, nil
			}
			grown := t.grow(ctx, v, n)
			if grown == nil {
				continue
			}
			if ctx.Err() != nil || errors.Is(grown, tier.ErrClosed) {
				return grant{}, grown
			}
			if isTrouble(grown) {
				v.dev.writing.ended(grown)
				err = t.blame(v, true, grown)
			}
			break
		}
	}
	return grant{}, err
}

// finish continues with the record, now that the payload is in its extent.
func (w *writing) finish(err error) {
	w.t.freePage(w.head)
	if err == nil {
		w.seg.dirty.Store(true)
		w.t.segments.written.Add(w.loc.extent(int64(w.entry.Size)))
		err = w.t.commits.add(w)
	}
	if err != nil {
		w.fail(err)
	}
}

func (w *writing) apply(b *batch) error {
	if w.entry.Inline {
		return b.putInline(&w.entry, w.key[:], w.value[:], w.payloadKey[:], w.block.Bytes())
	}
	return b.put(&w.entry, w.key[:], w.value[:])
}

func (w *writing) committed(err error) {
	if w.entry.Inline {
		w.block.Release()
	}
	if err != nil {
		if errors.Is(err, errUncertain) { // else a restart might bring it back, deleted or not
			w.t.commits.again((&removal{t: w.t, keys: []key.Key{w.entry.Key}}).orNothing())
		}
		w.fail(err)
		return
	}
	w.t.endFill(w.entry.Key, func() { w.t.ledger.Publish([]ledger.ID{w.id}, false) })
	w.t.scan.note(w.entry.Key)
	w.t.count.puts.Add(1)
	w.t.count.putBytes.Add(uint64(w.entry.Size))
	w.t.count.payload.Add(int64(w.entry.Size))
	w.t.share.live.Add(held(int64(w.entry.Size), w.entry.Inline))
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
	w.t.endFill(w.entry.Key, func() { w.t.ledger.Abort(w.id) })
}
