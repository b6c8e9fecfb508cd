package disk

import (
	"slices"
	"sync/atomic"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/internal/ledger"
)

// space is how much of the file systems and of the capacity segments may take.
type space struct {
	o        *Options
	now      *atomic.Pointer[Settings]
	volumes  volumes
	segments *segments
	share    *share
	ledger   *ledger.Ledger
}

func newSpace(t *instance) *space {
	return &space{&t.o, &t.now, t.volumes, t.segments, t.share, t.ledger}
}

// meta is how many bytes are set aside for the database: the reserve, or more if
// it needs more.
func (s *space) meta() int64 { return max(s.o.MetaReserveBytes, s.share.bytes.Load()) }

// growth is how many bytes new segments may take beside the present files.
func (s *space) growth(files int64) (room int64) {
	for _, f := range s.volumes.fileSystems() {
		room += max(0, s.spare(f))
	}
	return max(0, min(s.capacityLeft(files), room))
}

// growthIn is how many of them v may take.
func (s *space) growthIn(v *volume, files int64) int64 {
	return max(0, min(s.capacityLeft(files), s.spare(v.fs)))
}

// leastSlack is how many bytes segments leave for the tier's own small files and
// for growth between two looks: a file system that the tier itself has filled to
// its floor would else soon seem to be filled by others.
const leastSlack = 1 << 20

// spare is how many bytes of f may become segments.
func (s *space) spare(f *fileSystem) int64 {
	return f.available.Load() - s.floor(f) - max(f.slack.Load(), leastSlack)
}

// capacityLeft is how much of the capacity new segments may take.
func (s *space) capacityLeft(files int64) int64 {
	return s.o.CapacityBytes - max(s.o.MetaReserveBytes, s.share.growing()) - files
}

// floor is how many bytes segments leave free on f: MinFreeBytes for others, or
// share.floor for Badger if that is more, and the part of meta that Badger's
// files have not taken yet. Segments that took it would leave a tier that can
// neither store nor, being full of extents, shrink.
func (s *space) floor(f *fileSystem) int64 {
	if !f.hasMeta {
		return s.now.Load().MinFreeBytes
	}
	return max(s.now.Load().MinFreeBytes, s.share.floor) + max(0, s.meta()-s.share.files.Load())
}

// mark is the high watermark of a limit, or the low one once an eviction has started. A
// policy that plans chooses between a new entry and the one that would go for it: it
// evicts one for the other, not some ahead of time.
func (s *space) mark(limit int64, started bool) int64 {
	if started && !s.ledger.Plans() {
		return int64(float64(limit) * s.o.LowWatermark)
	}
	return int64(float64(limit) * s.o.HighWatermark)
}

// excess is how many bytes must be evicted before n more fit under the mark.
func (s *space) excess(n int64, started bool) int64 {
	files, used, _, _ := s.segments.usage()
	return used + n - max(s.mark(files+s.growth(files), started), n) // n alone may be above the mark
}

// fits reports whether n bytes have a place in one piece.
func (s *space) fits(n int64) bool {
	files, _, largest, _ := s.segments.usage()
	return largest >= n || slices.ContainsFunc(s.volumes, func(v *volume) bool {
		return v.dev.Writing.Well() && s.segments.canGrow(n, s.growthIn(v, files))
	})
}

// watch counts how long f has had less room than is to be left there.
func (s *space) watch(f *fileSystem) {
	if f.available.Load() < s.floor(f) {
		f.short.Add(1)
	} else if f.short.Swap(0) > 0 {
		s.segments.reopen(f)
	}
}

// order is the volumes to try for the next extent, without those in trouble
// unless all are. They take turns at the first place in proportion to the bytes
// free on each (smooth weighted round robin: each turn a volume gains its weight
// as credit, and the one with the most credit pays for all); the others follow
// by weight. One in trouble that may be probed comes first; then pass is the
// leave to do that.
func (s *space) order() (list []*volume, pass blockio.Pass) {
	if len(s.volumes) == 1 {
		return s.volumes, pass
	}
	var probe *volume
	for _, v := range s.volumes {
		if v.dev.Writing.Well() {
			list = append(list, v)
		} else if probe == nil {
			var ok bool
			if pass, ok = v.dev.Writing.Admit(); ok {
				probe = v
			}
		}
	}
	if len(list) == 0 {
		pass.Return()
		return s.volumes, blockio.Pass{}
	}
	s.segments.turns(list, s.growthIn)
	if probe != nil {
		list = slices.Insert(list, 0, probe)
	}
	return list, pass
}
