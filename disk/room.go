package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kvstored/kvstored/tier"
)

// lookEvery is how often the file system and Badger's files are measured.
const lookEvery = time.Second

// look measures what others change: the free space of a file system.
func (f *fileSystem) look() error {
	free, err := availableBytes(f.dir)
	if err == nil {
		f.available.Store(free)
	}
	return err
}

// lookAtMeta measures what the database occupies, and what it holds. One that
// does not work just now is not asked.
func (t *Tier) lookAtMeta() error {
	free, err := availableBytes(t.o.Meta)
	if err != nil {
		return err
	}
	t.share.free.Store(free)
	t.share.files.Store(allocatedBelow(t.db.dir))
	others := int64(smallFileBytes)
	if !slices.ContainsFunc(t.volumes, func(v *volume) bool { return sameDir(v.dir, t.o.Meta) }) {
		others += otherBytes(t.o.Meta)
	}
	for _, v := range t.volumes {
		others += v.others.Load()
	}
	t.share.others.Store(others)
	if err := t.share.look(t.db.measure); err != nil && !errors.Is(err, errBroken) {
		return err
	}
	return nil
}

// errGone says that a folder is not the one any more that was opened.
var errGone = errors.New("it is not the folder any more that was opened; is its disk mounted?")

// lookAtFolders finds folders that were moved, removed, or mounted anew under
// the tier. One that is missing is the trouble of its path, unless the tier
// depends on it; one that is there, but not the one that was opened, has to be
// opened.
func (t *Tier) lookAtFolders() error {
	for i, lock := range t.locks {
		was, err := lock.Stat()
		if err != nil {
			return err
		}
		is, err := os.Stat(lock.Name())
		switch {
		case err == nil && !os.SameFile(was, is),
			errors.Is(err, fs.ErrNotExist) && (i == 0 || len(t.volumes) == 1):
			return fmt.Errorf("disk: %s: %w", filepath.Dir(lock.Name()), errGone)
		}
	}
	return nil
}

// lookAll is both, before there is a device to hang.
func (t *Tier) lookAll() error {
	for _, f := range t.fileSystems() {
		if err := f.look(); err != nil {
			return err
		}
	}
	for _, v := range t.volumes {
		t.segments.lookAtOthers(v)
	}
	return t.lookAtMeta()
}

// meta is what is set aside for the database: the reserve, or more if it needs
// more.
func (t *Tier) meta() int64 { return max(t.o.MetaReserveBytes, t.share.bytes.Load()) }

// growth is how many bytes new segments may take beside the present files.
func (t *Tier) growth(files int64) (room int64) {
	for _, f := range t.fileSystems() {
		room += max(0, t.spare(f))
	}
	return max(0, min(t.capacityLeft(files), room))
}

// growthIn is how many of them v may take.
func (t *Tier) growthIn(v *volume, files int64) int64 {
	return max(0, min(t.capacityLeft(files), t.spare(v.fs)))
}

// leastSlack is what segments leave for the tier's own small files and for
// what is measured a moment too late: a file system that the tier itself has
// filled to its floor would else soon seem to be filled by others.
const leastSlack = 1 << 20

// spare is how many bytes of f may become segments.
func (t *Tier) spare(f *fileSystem) int64 {
	return f.available.Load() - t.floor(f) - max(f.slack.Load(), leastSlack)
}

// capacityLeft is how much of the capacity new segments may take.
func (t *Tier) capacityLeft(files int64) int64 {
	return t.o.CapacityBytes - max(t.o.MetaReserveBytes, t.share.growing()) - files
}

// floor is what a file system keeps free: what others are left, or the air
// that Badger needs if that is more, and what Badger may yet take of what is set
// aside for it. Segments that took it would leave a tier that can neither store
// nor, being full of extents, shrink.
func (t *Tier) floor(f *fileSystem) int64 {
	if !f.hasMeta {
		return t.now.Load().MinFreeBytes
	}
	return max(t.now.Load().MinFreeBytes, t.db.floor) + max(0, t.meta()-t.share.files.Load())
}

// excess is how many bytes must be evicted before n more fit under the high
// watermark, or under the low one once an eviction has started. A policy that
// plans chooses between what comes and what would go for it: it evicts one for
// the other, not some ahead of time.
func (t *Tier) excess(n int64, started bool) int64 {
	files, used, _, _ := t.segments.usage()
	limit := float64(files + t.growth(files))
	mark := int64(limit * t.now.Load().HighWatermark)
	if started && !t.ledger.Plans() {
		mark = int64(limit * t.now.Load().LowWatermark)
	}
	return used + n - max(mark, n) // n alone may be above the mark
}

// fits reports whether n bytes have a place in one piece.
func (t *Tier) fits(n int64) bool {
	files, _, largest, _ := t.segments.usage()
	return largest >= n || slices.ContainsFunc(t.volumes, func(v *volume) bool {
		return v.dev.writing.well() && t.segments.canGrow(n, t.growthIn(v, files))
	})
}

// grow adds a segment to v that holds n bytes, unless somebody else just has.
func (t *Tier) grow(ctx context.Context, v *volume, n int64) error {
	select {
	case v.fs.growing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	unlock := func() { <-v.fs.growing }
	if t.segments.usageOf(v).largest >= n {
		unlock()
		return nil
	}
	files, _, _, _ := t.segments.usage()
	if !t.segments.canGrow(n, t.growthIn(v, files)) {
		unlock()
		return tier.ErrNoSpace
	}
	return t.call(ctx, v.dev, func() error {
		if err := v.fs.look(); err != nil {
			return err
		}
		return t.segments.grow(v, n, func(files int64) int64 { return t.growthIn(v, files) })
	}, unlock)
}

// maintain does what is due from time to time, until ctx ends.
func (t *Tier) maintain(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := t.call(ctx, t.metaDev, func() error { return errors.Join(t.lookAtFolders(), t.lookAtMeta()) }, nil)
		if errors.Is(err, errGone) {
			return err
		}
		for _, v := range t.volumes {
			err = errors.Join(err, t.call(ctx, v.dev, func() error {
				t.segments.lookAtOthers(v)
				return errors.Join(t.segments.removeIdle(v), v.fs.look())
			}, nil))
		}
		for _, f := range t.fileSystems() {
			t.watch(f)
		}
		if err != nil && ctx.Err() == nil {
			t.trouble.Warn().Err(err).Msg("maintenance failed")
		}
		t.saveUses()
		t.tellMismatches()
	}
}

// watch counts how long f has had less room than is to be left there.
func (t *Tier) watch(f *fileSystem) {
	if f.available.Load() < t.floor(f) {
		f.short.Add(1)
	} else if f.short.Swap(0) > 0 {
		t.segments.reopen(f)
	}
}

// Sync makes everything Put so far survive a power failure: the extents, then
// the records. A device may take its time for that and end nothing else
// meanwhile, so only ctx bounds it.
func (t *Tier) Sync(ctx context.Context) error {
	err := t.usable(ctx)
	if err == nil {
		err = t.bury(ctx)
	}
	if err == nil {
		err = t.syncAll(ctx)
	}
	if err != nil {
		return fmt.Errorf("disk: sync: %w", err)
	}
	return nil
}

func (t *Tier) syncAll(ctx context.Context) error {
	syncs := make([]*calling, len(t.volumes))
	for i, v := range t.volumes { // all at once
		syncs[i] = startCall(v.dev, func() error { return t.segments.sync(v) }, nil)
	}
	var err error
	for i, c := range syncs {
		err = errors.Join(err, t.blame(t.volumes[i], true, t.await(ctx, c)))
	}
	if err == nil {
		err = t.await(ctx, startCall(t.metaDev, t.syncMeta, nil))
	}
	return err
}

// await waits for what takes its time.
func (t *Tier) await(ctx context.Context, c *calling) (err error) {
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		err = ctx.Err()
	case <-t.ended:
		err = tier.ErrClosed
	}
	c.dev.cancel(&c.transfer, err)
	return err
}

// sync makes what v's files hold survive a power failure, and their names.
func (s *segments) sync(v *volume) error {
	s.mu.Lock()
	list := slices.Clone(v.list)
	s.mu.Unlock()
	for _, g := range list {
		if !g.dirty.Swap(false) {
			continue
		}
		if err := g.file.Sync(); err != nil {
			g.dirty.Store(true)
			return err
		}
	}
	return syncPath(v.dir)
}

func (t *Tier) syncMeta() error {
	if err := errors.Join(t.graveLog.sync(), syncPath(t.o.Meta)); err != nil {
		return err
	}
	return t.db.sync()
}
