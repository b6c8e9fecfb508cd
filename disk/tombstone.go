package disk

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/database"
)

// cleanName is the file of a tier that ended with its headers in order: an entry
// that is not in the database has no header either.
const cleanName = "kvstored.clean"

const (
	maxTombWrites = 64          // under way at once
	tombRetry     = time.Second // after one that failed
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
		x.void = g.free.FreeFrom(loc.offset() + extentBytes(n))
	}
	return x
}

// takeTombs returns the waiting tombstones, and the segment of each; one whose
// segment is gone is dropped.
func (s *segments) takeTombs() (list []tombstone, in []*segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.mu.tombs {
		if g := s.find(x.loc.segment()); g != nil {
			list, in = append(list, x), append(in, g)
		} else {
			delete(s.mu.readers, uint64(x.loc))
			delete(s.mu.freeing, uint64(x.loc))
			if x.held {
				s.unwritten.Add(-1)
			}
		}
	}
	s.mu.tombs = nil
	return list, in
}

// requeueTombs puts tombstones back that could not be written.
func (s *segments) requeueTombs(xs ...tombstone) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tombs = append(s.mu.tombs, xs...)
}

// headerPage is memory for one header.
type headerPage = *[database.HeaderBytes]byte

// pages are memory for headers that is not in use.
var pages = sync.Pool{New: func() any { return headerPage(blockio.AlignedBytes(database.HeaderBytes)) }}

// newPage is an aligned page, until freePage.
func newPage() []byte      { return pages.Get().(headerPage)[:] }
func freePage(page []byte) { pages.Put(headerPage(page)) }

// tombWriter writes the tombstones of freed extents.
type tombWriter struct {
	t    *instance
	turn turn // of the one flush that works
}

// flush writes the tombstones of all extents that were freed before, and so
// makes these reusable. The next call writes again the tombstones that it could not write.
func (u *tombWriter) flush(ctx context.Context) error {
	t := u.t
	if err := u.turn.take(ctx, t.ended); err != nil {
		return err
	}
	defer u.turn.leave()
	list, in := t.segments.takeTombs()
	var first error
	for len(list) > 0 {
		n := min(len(list), maxTombWrites)
		if err := u.write(ctx, list[:n], in[:n]); err != nil && first == nil {
			first = err
		}
		list, in = list[n:], in[n:]
		if first != nil {
			t.segments.requeueTombs(list...)
			break
		}
	}
	return first
}

// run writes the tombstones of the extents that no caller waits for, until ctx ends.
func (u *tombWriter) run(ctx context.Context) error {
	t := u.t
	for base.Await(ctx, t.segments.freed) {
		for err := u.flush(ctx); err != nil && ctx.Err() == nil; err = u.flush(ctx) {
			t.trouble.Warn().Err(err).Msg("headers of freed extents are not written; their room is not used yet")
			_ = base.Sleep(ctx, tombRetry)
		}
	}
	return nil
}

func (u *tombWriter) write(ctx context.Context, list []tombstone, in []*segment) (err error) {
	t := u.t
	sent := make([]*work, len(list))
	for i, x := range list {
		w := newWork()
		w.File, w.Off, w.Buf, w.Write = in[i].file, x.loc.offset(), newPage(), true
		u.seal(w.Buf, x)
		w.after = func(err error) { u.wrote(w, x, in[i], err) }
		sent[i] = w.submit(in[i].volume.dev)
	}
	for i, w := range sent {
		if werr := t.wait(ctx, w.done, &w.Transfer); werr != nil && err == nil {
			err = t.volumes.blame(in[i].volume, true, werr)
		}
	}
	return err
}

// wrote makes the extent of a tombstone reusable, or has that tried again.
func (u *tombWriter) wrote(w *work, x tombstone, seg *segment, err error) {
	s := u.t.segments
	freePage(w.Buf)
	if err != nil {
		s.requeueTombs(x)
		return
	}
	seg.syncState.wrote(x.seq)
	if x.held {
		s.release(x.loc)
		s.unwritten.Add(-1)
	}
}

func (u *tombWriter) seal(page []byte, x tombstone) {
	t := u.t
	extent := database.Extent{Segment: x.loc.segment(), Offset: x.loc.offset(), Bytes: uint32(extentBytes(x.n))}
	e := database.Entry{Size: uint32(x.n), Seq: x.seq, Extent: extent}
	t.seal.Seal(page, &database.Header{Entry: e, Void: x.void, Free: true})
}

// beginUnclean reports whether the last process left headers that the database
// does not know of, and has this one be taken for such until it ends.
func (o opening) beginUnclean() (unclean bool, err error) {
	t := o.t
	clean, err := t.set.Meta.Exists(cleanName)
	if clean && err == nil {
		err = t.set.Meta.Remove(cleanName)
	}
	if clean && err == nil {
		err = t.set.Meta.Sync()
	}
	return !clean, err
}

// endClean writes the tombstones that are left, when the workers have ended, and
// makes the file cleanName if the end was orderly and all are written.
func (u *tombWriter) endClean(closed error) {
	t := u.t
	hung := slices.ContainsFunc(t.devices(), func(d *blockio.Device) bool { return d.InKernel() > 0 })
	if closed != nil || hung || t.db == nil || t.scan.active.Load() || !t.surveyed.Load() {
		return
	}
	if unverified, _ := t.segments.unverified(); len(unverified) > 0 { // headers of theirs may not be written
		return
	}
	err := within(t.o.IOTimeout, func() error {
		page := blockio.AlignedBytes(database.HeaderBytes)
		list, in := t.segments.takeTombs()
		for i, x := range list {
			t.tombs.seal(page, x)
			if _, err := in[i].file.WriteAt(page, x.loc.offset()); err != nil {
				return err
			}
		}
		return t.set.Meta.Replace(cleanName, nil)
	})
	if err != nil {
		t.log.Warn().Err(err).Msg("the headers of freed extents are not all written; the next start looks for them")
	}
}
