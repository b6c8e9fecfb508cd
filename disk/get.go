package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// found is where a payload lies, and the size and checksum that it must have.
type found struct {
	loc  location
	seg  *segment // nil when inline
	size uint32
	sum  uint64
	pass blockio.Pass // of the first reading
}

// Get reads k's payload into a block of a, verifies and seals it; the caller
// owns the one reference. Wrong bytes are read once more, then the entry is
// deleted and the error is ErrCorrupt. After an expired ctx the device may go
// on for a while; the block stays referenced until it has ended.
func (t *Tier) Get(ctx context.Context, k key.Key, a tier.Allocator) (arena.Block, error) {
	b, err := t.now.Load().get(ctx, k, a)
	if err != nil {
		return arena.Block{}, t.failed(fmt.Sprintf("get %x", k.Hash), err)
	}
	return b, nil
}

func (t *instance) get(ctx context.Context, k key.Key, a tier.Allocator) (arena.Block, error) {
	if err := t.usable(ctx); err != nil {
		return arena.Block{}, err
	}
	f, err := t.find(ctx, k)
	if err != nil {
		return arena.Block{}, err
	}
	if f.seg != nil {
		defer t.segments.release(f.loc)
		v, ok := f.seg.volume, false
		if f.pass, ok = v.dev.Reading.Admit(); !ok && t.volumes.othersWork(v, false) {
			return arena.Block{}, fmt.Errorf("%s does not work at present: %w", v.dir, tier.ErrOff)
		}
	}
	b, err := a.Alloc(ctx, int(f.size))
	if err != nil {
		f.pass.Return()
		return arena.Block{}, err
	}
	for range 2 { // a transfer can go wrong once; bytes at rest stay wrong
		var good bool
		if good, err = t.read(ctx, k, f, b); good {
			b.SealSum(f.sum)
			t.count.gets.Add(1)
			t.count.getBytes.Add(uint64(f.size))
			return b, nil
		}
		if err != nil {
			break
		}
		f.pass = blockio.Pass{}
	}
	b.Release()
	if err == nil {
		if dropped := t.removeIf(k, f); !dropped && f.seg == nil {
			return arena.Block{}, tier.ErrNotFound // it was removed while it was read: nothing holds what lies in the database
		}
		t.count.corruptGet.Add(1)
		t.isWrong(k, f)
		err = tier.ErrCorrupt
	}
	return arena.Block{}, err
}

// isWrong reports a payload that does not have its checksum: a device that returns wrong
// bytes does so again and again.
func (t *instance) isWrong(k key.Key, f found) {
	t.trouble.Error().Hex("key", k.Hash[:]).Uint32("segment", f.loc.segment()).Int64("offset", f.loc.offset()).
		Msg("a payload does not match its checksum; its entry is deleted")
}

// findResident looks k up in the ledger, and enters its extent as a reader.
func (t *instance) findResident(k key.Key) (f found, ok bool) {
	f.loc, f.seg, ok = t.segments.acquire(func() (location, bool) {
		e, state := t.ledger.Find(k)
		f.size, f.sum = e.Size, e.Value.B
		return location(e.Value.A), state == ledger.Resident
	})
	return f, ok
}

// find is findResident also of what recovery may not have come to.
func (t *instance) find(ctx context.Context, k key.Key) (f found, err error) {
	scanning := t.scan.active.Load() // before the look-up: an entry is in the ledger before this ends
	f, ok := t.findResident(k)
	if ok {
		return f, nil
	}
	if !scanning {
		return f, tier.ErrNotFound
	}
	e, err := t.unscanned(ctx, k)
	if err == nil && e == nil && !t.scan.active.Load() {
		return t.find(ctx, k) // the scan has ended meanwhile, and may have brought it
	}
	if err != nil || e == nil {
		return f, errors.Join(err, tier.ErrNotFound)
	}
	f.size, f.sum = e.Size, e.Sum
	f.loc, f.seg, ok = t.segments.acquire(func() (location, bool) { return locate(e.Extent), e.Size > 0 })
	if !ok || f.seg != nil && e.Extent.End() > f.seg.size {
		if f.seg != nil {
			t.segments.release(f.loc)
		}
		return f, tier.ErrNotFound
	}
	return f, nil
}

// read fills b and reports whether the bytes are the right ones. An error is
// one of the device, not of the bytes.
func (t *instance) read(ctx context.Context, k key.Key, f found, b arena.Block) (good bool, err error) {
	var sum uint64
	if f.seg == nil {
		sum, err = t.readInline(ctx, k, b)
	} else {
		sum, err = t.readExtent(ctx, f, b)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, metadata.ErrNoPayload) {
		return false, nil // cut off
	}
	return err == nil && sum == f.sum, err
}

// reading is one extent being read.
type reading struct {
	blockio.Transfer
	t    *instance
	loc  location
	done chan error
}

// readExtent fills b and returns the checksum of its bytes.
func (t *instance) readExtent(ctx context.Context, f found, b arena.Block) (uint64, error) {
	r := &reading{t: t, loc: f.loc, done: make(chan error, 1)}
	r.File, r.Off, r.Buf, r.Block, r.Pass, r.End = f.seg.file, f.loc.payload(), b.Padded(), b, f.pass, r
	a := arriving{sum: arena.SumOver(b.Bytes()), bytes: b.Len()}
	r.Came = &a
	t.segments.retain(f.loc)
	if err := f.seg.volume.dev.Submit(&r.Transfer); err != nil {
		t.segments.release(f.loc)
		return 0, err
	}
	if err := t.volumes.blame(f.seg.volume, false, t.wait(ctx, r.done, &r.Transfer)); err != nil {
		return 0, err
	}
	return a.sum.Sum(), nil
}

func (r *reading) Finish(err error) {
	r.t.segments.release(r.loc)
	r.done <- err
}

// readInline copies through the heap: the block may not be written after the
// call gave up.
func (t *instance) readInline(ctx context.Context, k key.Key, b arena.Block) (uint64, error) {
	payload, err := t.inlinePayload(ctx, k)
	if err == nil && len(payload) != b.Len() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return 0, err
	}
	copy(b.Bytes(), payload)
	return arena.Checksum(b.Bytes()), nil
}

// inlinePayload is a copy of a payload that lies in Badger.
func (t *instance) inlinePayload(ctx context.Context, k key.Key) ([]byte, error) {
	return ask(ctx, t, func() ([]byte, error) { return t.db.Payload(k) })
}

const mostPieces = arena.MaxPayload / blockio.PieceBytes

// arriving is the checksum of a payload that is being read. Each piece is hashed once
// all before it have been read, while the device reads those behind it, so that after
// the last one only that is left. It is valid when the transfer has finished well.
type arriving struct {
	bytes int
	sum   arena.RunningSum // of the goroutine that has set hashing, and in the end of the reader

	mu struct {
		sync.Mutex
		landed  [(mostPieces + 63) / 64]uint64 // a bit for each piece
		next    int                            // pieces that were taken to be hashed
		hashing bool
	}
}

// Landed implements blockio.Lander.
func (a *arriving) Landed(from, _ int) {
	piece := from / blockio.PieceBytes
	a.mu.Lock()
	a.mu.landed[piece/64] |= 1 << (piece % 64)
	if a.mu.hashing {
		a.mu.Unlock()
		return
	}
	a.mu.hashing = true
	for a.ready() {
		n := min(blockio.PieceBytes, a.bytes-a.mu.next*blockio.PieceBytes)
		a.mu.next++
		a.mu.Unlock()
		a.sum.Arrived(n)
		a.mu.Lock()
	}
	a.mu.hashing = false
	a.mu.Unlock()
}

// ready reports whether the next piece has been read; called with the mutex held.
func (a *arriving) ready() bool {
	next := a.mu.next
	return next*blockio.PieceBytes < a.bytes && a.mu.landed[next/64]&(1<<(next%64)) != 0
}
