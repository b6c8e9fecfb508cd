package disk

import (
	"context"
	"fmt"
	"time"

	"github.com/kvstored/kvstored/tier"
)

// lookEvery is how often the file system and Badger's files are measured.
const lookEvery = time.Second

// look measures what others change: the file system's free space and what
// Badger occupies.
func (t *Tier) look() error {
	free, err := availableBytes(t.o.Path)
	if err != nil {
		return err
	}
	t.available.Store(free)
	t.metaBytes.Store(t.db.bytes())
	t.metaAdded.Store(0)
	return nil
}

// meta is what Badger counts for: what is set aside for it, or more if it
// took more.
func (t *Tier) meta() int64 {
	return max(t.o.MetaReserveBytes, t.metaBytes.Load()+t.metaAdded.Load())
}

// inlineRoom is how many payload bytes may still go into Badger. Beyond three
// quarters of the reserve small payloads take an extent like the others, so
// that they cannot push Badger over it.
func (t *Tier) inlineRoom() int64 {
	return t.o.MetaReserveBytes/4*3 - t.metaBytes.Load() - t.metaAdded.Load()
}

// growth is how many bytes new segments may take beside the present files.
func (t *Tier) growth(files int64) int64 {
	return max(0, min(t.o.CapacityBytes-t.meta()-files, t.available.Load()-t.floor()))
}

// floor is what the file system of Path keeps free: what others are left, or
// what Badger needs there if that is more. Segments that took it would leave
// a tier that can neither store nor, being full of extents, shrink.
func (t *Tier) floor() int64 {
	if !t.shared {
		return t.o.MinFreeBytes
	}
	return max(t.o.MinFreeBytes, t.db.floor+max(0, t.o.MetaReserveBytes-t.metaBytes.Load()))
}

// excess is how many bytes must be evicted before n more fit under the high
// watermark, or under the low one once an eviction has started.
func (t *Tier) excess(n int64, started bool) int64 {
	files, used, _, _ := t.segments.usage()
	limit := float64(files + t.growth(files))
	mark := int64(limit * t.o.HighWatermark)
	if started {
		mark = int64(limit * t.o.LowWatermark)
	}
	return used + n - max(mark, n) // n alone may be above the mark
}

// fits reports whether n bytes have a place in one piece.
func (t *Tier) fits(n int64) bool {
	files, _, largest, _ := t.segments.usage()
	return largest >= n || t.segments.canGrow(n, t.growth(files))
}

// grow adds a segment that holds n bytes, unless somebody else just has.
func (t *Tier) grow(ctx context.Context, n int64) error {
	if err := t.segments.lockGrowth(ctx); err != nil {
		return err
	}
	files, _, largest, _ := t.segments.usage()
	if largest >= n {
		t.segments.unlockGrowth()
		return nil
	}
	if !t.segments.canGrow(n, t.growth(files)) {
		t.segments.unlockGrowth()
		return tier.ErrNoSpace
	}
	return t.call(ctx, func() error {
		if err := t.look(); err != nil {
			return err
		}
		return t.segments.grow(n, t.growth(files))
	}, t.segments.unlockGrowth)
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
		err := t.call(ctx, func() error {
			if err := t.segments.removeIdle(); err != nil {
				return err
			}
			return t.look()
		}, nil)
		if err != nil && ctx.Err() == nil {
			t.trouble.Warn().Err(err).Msg("maintenance failed")
		}
		t.saveUses()
	}
}

// Sync makes everything Put so far survive a power failure: the extents, then
// the records. A device may take its time for that and end nothing else
// meanwhile, so only ctx bounds it.
func (t *Tier) Sync(ctx context.Context) error {
	if err := t.usable(ctx); err != nil {
		return fmt.Errorf("disk: sync: %w", err)
	}
	c := t.start(t.sync, nil)
	err := error(nil)
	select {
	case err = <-c.done:
	case <-ctx.Done():
		err = ctx.Err()
	case <-t.ended:
		err = tier.ErrClosed
	}
	if err != nil {
		t.dev.cancel(&c.transfer, err)
		return fmt.Errorf("disk: sync: %w", err)
	}
	return nil
}

func (t *Tier) sync() error {
	for _, g := range t.segments.all() {
		if !g.dirty.Swap(false) {
			continue
		}
		if err := g.file.Sync(); err != nil {
			g.dirty.Store(true)
			return err
		}
	}
	for _, dir := range []string{t.o.Path, t.o.Meta} { // the files' names
		if err := syncPath(dir); err != nil {
			return err
		}
	}
	return t.db.sync()
}
