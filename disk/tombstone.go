package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/record"
	"github.com/kvstored/kvstored/key"
)

// cleanName is the file of a tier that ended with its headers in order: what is
// not in the database is not in a header either.
const cleanName = "kvstored.clean"

const (
	maxBurials = 64          // under way at once
	buryAgain  = time.Second // after one that failed
)

// tombstone is a header to be written that says that an extent is free. The
// extent is not reused before that.
type tombstone struct {
	loc  location
	n    int64 // bytes of payload
	void int64
	seq  uint64
	held bool // as a reader of the extent
}

// tombstone makes one of an extent in use. The owner holds mu.
func (s *segments) tombstone(loc location, n int64) tombstone {
	x := tombstone{loc: loc, n: n, seq: s.seq.Add(1), held: true}
	if g := s.find(loc.segment()); g != nil && g.free != nil {
		x.void = g.free.FreeFrom(loc.offset() + loc.extent(n))
	}
	return x
}

// takeTombs returns what waits, and the segments it lies in; what lies in none
// any more is gone.
func (s *segments) takeTombs() (list []tombstone, in []*segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.mu.tombs {
		if g := s.find(x.loc.segment()); g != nil {
			list, in = append(list, x), append(in, g)
		} else {
			delete(s.mu.readers, uint64(x.loc))
			delete(s.mu.leaving, uint64(x.loc))
		}
	}
	s.mu.tombs = nil
	return list, in
}

// againTombs puts back what could not be written.
func (s *segments) againTombs(xs ...tombstone) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tombs = append(s.mu.tombs, xs...)
}

// headerPage is memory for one header.
type headerPage = *[record.HeaderBytes]byte

// newPage is an aligned page, until freePage.
func (t *Tier) newPage() []byte      { return t.pages.Get().(headerPage)[:] }
func (t *Tier) freePage(page []byte) { t.pages.Put(headerPage(page)) }

// burial is one tombstone on its way.
type burial struct {
	transfer
	t    *Tier
	tomb tombstone
	seg  *segment
	done chan<- error
}

// finish makes the extent reusable, or has the tombstone tried again.
func (b *burial) finish(err error) {
	b.t.freePage(b.buf)
	if err != nil {
		b.t.segments.againTombs(b.tomb)
	} else {
		b.seg.dirty.Store(true)
		if b.tomb.held {
			b.t.segments.leave(b.tomb.loc)
		}
	}
	b.done <- err
}

// bury writes the tombstones of all extents that were freed before, and so
// makes these reusable. What it could not write is tried again by the next one.
func (t *Tier) bury(ctx context.Context) error {
	select {
	case t.burying <- struct{}{}:
		defer func() { <-t.burying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	list, in := t.segments.takeTombs()
	var first error
	for len(list) > 0 {
		n := min(len(list), maxBurials)
		if err := t.burySome(ctx, list[:n], in[:n]); err != nil && first == nil {
			first = err
		}
		list, in = list[n:], in[n:]
		if first != nil {
			t.segments.againTombs(list...)
			break
		}
	}
	return first
}

// keepBurying buries the extents that no caller waits for, until ctx ends.
func (t *Tier) keepBurying(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.segments.freed:
		}
		for err := t.bury(ctx); err != nil && ctx.Err() == nil; err = t.bury(ctx) {
			t.trouble.Warn().Err(err).Msg("headers of freed extents are not written; their room is not used yet")
			select {
			case <-ctx.Done():
			case <-time.After(buryAgain):
			}
		}
	}
}

func (t *Tier) burySome(ctx context.Context, list []tombstone, in []*segment) (err error) {
	done := make(chan error, len(list))
	sent := make([]*burial, 0, len(list))
	for i, x := range list {
		b := &burial{t: t, tomb: x, seg: in[i], done: done}
		b.buf = t.newPage()
		t.sealTomb(b.buf, x)
		b.file, b.off, b.write, b.end = b.seg.file, x.loc.offset(), true, b
		if serr := b.seg.volume.dev.submit(&b.transfer); serr != nil {
			t.segments.againTombs(x)
			err = errors.Join(err, serr)
			continue
		}
		sent = append(sent, b)
	}
	for _, b := range sent { // as they end, in whatever order
		if werr := t.wait(ctx, done, &b.transfer); werr != nil && err == nil {
			err = t.blame(b.seg.volume, true, werr)
		}
	}
	return err
}

func (t *Tier) sealTomb(page []byte, x tombstone) {
	extent := record.Extent{Segment: x.loc.segment(), Offset: x.loc.offset(), Bytes: uint32(x.loc.extent(x.n))}
	e := record.Entry{Size: uint32(x.n), Seq: x.seq, Extent: extent, Headed: true}
	t.seal.Seal(page, &record.Header{Entry: e, Void: x.void, Free: true})
}

// beginUnclean reports whether the last process left headers that the database
// does not know of, and has this one be taken for such until it ends.
func (t *Tier) beginUnclean() (unclean bool, err error) {
	path := filepath.Join(t.o.Meta, cleanName)
	clean, err := exists(path)
	if clean && err == nil {
		err = os.Remove(path)
	}
	if clean && err == nil {
		err = syncPath(t.o.Meta)
	}
	return !clean, err
}

// endClean writes what tombstones are left, when the workers have ended, and
// says so if all is in order.
func (t *Tier) endClean(closed error) {
	hung := slices.ContainsFunc(t.devices(), func(d *device) bool { return d.inKernel() > 0 })
	if closed != nil || hung || t.db == nil || t.scan.active.Load() || !t.surveyed.Load() {
		return
	}
	err := within(t.o.IOTimeout, func() error {
		page := alignedBytes(record.HeaderBytes)
		list, in := t.segments.takeTombs()
		for i, x := range list {
			t.sealTomb(page, x)
			if _, err := in[i].file.WriteAt(page, x.loc.offset()); err != nil {
				return err
			}
		}
		return writeFile(filepath.Join(t.o.Meta, cleanName), nil)
	})
	if err != nil {
		t.log.Warn().Err(err).Msg("the headers of freed extents are not all written; the next start looks for them")
	}
}

// graves returns the keys that were deleted while it was not known what there
// is of them, with the numbers of their deletions.
func (s *store) graves() (map[key.Key]uint64, error) {
	list := make(map[key.Key]uint64)
	var after []byte
	for more := true; more; {
		err := s.ask(func(db *database.DB) (err error) {
			more, err = db.Page(record.GravePrefix(), after, math.MaxInt32, func(dbKey, v []byte) error {
				after = dbKey
				if k, ok := record.ParseGraveKey(dbKey); ok && len(v) == 8 {
					list[k] = binary.LittleEndian.Uint64(v)
				}
				return nil
			})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// graves is a change of notes about deleted keys.
type graves struct {
	t    *Tier
	keys []key.Key
	done chan error
}

func (g *graves) apply(b *batch) error {
	for _, k := range g.keys {
		b.unbury(k)
	}
	return nil
}

func (g *graves) committed(err error) { g.done <- err }
