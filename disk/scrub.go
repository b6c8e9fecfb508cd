package disk

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Scrub implements tier.Scrubber: it reads every payload that was there when
// it came by, in pieces that others' transfers go between, at most
// bytesPerSecond (0 = as fast as the device allows). A payload that does not
// have its checksum is read once more and then deleted. One that cannot be
// read is counted and stays: that says more about the device than about it.
func (t *Tier) Scrub(ctx context.Context, bytesPerSecond int64, gone func(key.Key)) (tier.Scrubbed, error) {
	sum, err := t.now.Load().scrub(ctx, bytesPerSecond, gone)
	return sum, t.failed("scrub", err)
}

func (t *instance) scrub(ctx context.Context, bytesPerSecond int64, gone func(key.Key)) (sum tier.Scrubbed, err error) {
	if err := t.usable(ctx); err != nil {
		return sum, err
	}
	t.count.scrubbing.Add(1)
	defer t.count.scrubbing.Add(-1)
	s := &scrub{t: t, pace: pace{perSecond: bytesPerSecond}, buf: blockio.AlignedBytes(blockio.PieceBytes)}
	err = t.walkKeys(ctx, everything, func(ks []key.Key) error {
		for _, k := range ks {
			if err := s.check(ctx, k, &sum, gone); err != nil {
				return err
			}
		}
		return nil
	})
	return sum, err
}

// keysAtOnce is how many records walkKeys looks at with one request.
const keysAtOnce = 4096

// walkKeys reads the whole database, and calls fn with the keys of records that are wanted, in
// parts.
func (t *instance) walkKeys(ctx context.Context, wanted func(*database.Entry) bool, fn func([]key.Key) error) error {
	for from := (key.Key{}); ; {
		ks, err := ask(ctx, t, func() (metadata.Keys, error) { return t.db.KeysAfter(from, keysAtOnce, wanted) })
		if err == nil {
			err = fn(ks.Wanted)
		}
		if err != nil || ks.Last == from {
			return err
		}
		from = ks.Last
	}
}

func everything(*database.Entry) bool { return true }

// scrub is one pass.
type scrub struct {
	t    *instance
	pace pace
	buf  []byte // lost when a read is given up, and the pass with it
	hash xxh3.Hasher
}

// check verifies one payload. An error ends the pass.
func (s *scrub) check(ctx context.Context, k key.Key, sum *tier.Scrubbed, gone func(key.Key)) error {
	t := s.t
	f, ok := t.findResident(k)
	if !ok {
		return nil // evicted meanwhile
	}
	if f.seg != nil {
		defer t.segments.release(f.loc)
	}
	good, err := s.read(ctx, k, f)
	if err == nil && !good {
		good, err = s.read(ctx, k, f)
	}
	switch {
	case errors.Is(err, metadata.ErrNoPayload), errors.Is(err, io.ErrUnexpectedEOF):
		good = false
	case ctx.Err() != nil || errors.Is(err, blockio.ErrHung) || errors.Is(err, tier.ErrClosed):
		return err
	case err != nil:
		sum.Failed++
		t.trouble.Warn().Err(err).Hex("key", k.Hash[:]).Msg("scrub: payload cannot be read")
		return nil
	}
	sum.Chunks++
	sum.Bytes += uint64(f.size)
	t.count.scrubBytes.Add(uint64(f.size))
	if !good && t.removeIf(k, f) { // else it was evicted meanwhile, or stored anew
		sum.Wrong++
		t.count.corruptScrub.Add(1)
		t.isWrong(k, f)
		gone(k)
	}
	return nil
}

// read reports whether a payload has its checksum.
func (s *scrub) read(ctx context.Context, k key.Key, f found) (good bool, err error) {
	s.hash.Reset()
	if f.seg == nil {
		payload, err := s.t.inlinePayload(ctx, k)
		if err == nil {
			err = s.pace.wait(ctx, int64(len(payload)))
		}
		return xxh3.Hash(payload) == f.sum && len(payload) == int(f.size), err
	}
	for done := int64(0); done < int64(f.size); done += blockio.PieceBytes {
		n := min(int64(f.size)-done, blockio.PieceBytes)
		r := newWork()
		r.File, r.Off, r.Buf = f.seg.file, f.loc.payload()+done, s.buf[:arena.RoundUp(n)]
		s.t.segments.retain(f.loc)
		r.after = func(error) { s.t.segments.release(f.loc) }
		if err := s.t.wait(ctx, r.submit(f.seg.volume.dev).done, &r.Transfer); err != nil {
			return false, err
		}
		_, _ = s.hash.Write(s.buf[:n]) // never fails
		if err := s.pace.wait(ctx, n); err != nil {
			return false, err
		}
	}
	return s.hash.Sum64() == f.sum, nil
}

// pace spreads bytes over time.
type pace struct {
	perSecond int64 // 0 = no limit
	next      time.Time
}

// wait lets the time pass that n bytes may take.
func (p *pace) wait(ctx context.Context, n int64) error {
	if p.perSecond == 0 {
		return ctx.Err()
	}
	now := time.Now()
	if p.next.Before(now) {
		p.next = now // time that was not used is not made up for
	}
	p.next = p.next.Add(time.Duration(float64(n) / float64(p.perSecond) * float64(time.Second)))
	return base.Sleep(ctx, time.Until(p.next))
}
