package disk

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/ledger"
)

// headroom is how much of the file systems and of the capacity segments may take.
type headroom struct{ t *instance }

// meta is how many bytes are set aside for the database: the reserve, or more if
// it needs more.
func (s *headroom) meta() int64 { return max(s.t.o.MetaReserveBytes, s.t.budget.bytes.Load()) }

// growth is how many bytes new segments may take beside the present files.
func (s *headroom) growth(files int64) (room int64) {
	for _, f := range s.t.volumes.fileSystems() {
		room += max(0, s.allocatable(f))
	}
	return max(0, min(s.capacityLeft(files), room))
}

// growthIn is how many of them v may take.
func (s *headroom) growthIn(v *volume, files int64) int64 {
	return max(0, min(s.capacityLeft(files), s.allocatable(v.fs)))
}

// leastSlack is how many bytes segments leave for the tier's own small files and
// for growth between two looks: a file system that the tier itself has filled to
// its floor would else soon seem to be filled by others.
const leastSlack = 1 << 20

// allocatable is how many bytes of f may become segments.
func (s *headroom) allocatable(f *fileSystem) int64 {
	return f.available.Load() - s.floor(f) - max(f.slack.Load(), leastSlack)
}

// capacityLeft is how much of the capacity new segments may take.
func (s *headroom) capacityLeft(files int64) int64 {
	return s.t.o.CapacityBytes - max(s.t.o.MetaReserveBytes, s.t.budget.growing()) - files
}

// floor is how many bytes segments leave free on f: MinFreeBytes for others, or
// budget.floor for Badger if that is more, and the part of meta that Badger's
// files have not taken yet. Segments that took it would leave a tier that can
// neither store nor, being full of extents, shrink.
func (s *headroom) floor(f *fileSystem) int64 {
	if !f.hasMeta {
		return s.t.o.minFree.Load()
	}
	return max(s.t.o.minFree.Load(), s.t.budget.floor) + max(0, s.meta()-s.t.budget.files.Load())
}

// mark is the high watermark of a limit, or the low one once an eviction has started. A
// policy that plans chooses between a new entry and the one that would go for it: it
// evicts one for the other, not some ahead of time.
func (s *headroom) mark(limit int64, started bool) int64 {
	if started && !s.t.ledger.Planning().Plans() {
		return int64(float64(limit) * s.t.o.LowWatermark)
	}
	return int64(float64(limit) * s.t.o.HighWatermark)
}

// excess is how many bytes must be evicted before n more fit under the mark.
func (s *headroom) excess(n int64, started bool) int64 {
	u := s.t.segments.usage()
	return u.used + n - max(s.mark(u.files+s.growth(u.files), started), n) // n alone may be above the mark
}

// fits reports whether n bytes have a place in one piece.
func (s *headroom) fits(n int64) bool {
	u := s.t.segments.usage()
	return u.largest >= n || slices.ContainsFunc(s.t.volumes, func(v *volume) bool {
		return v.dev.Writing.Well() && s.t.segments.canGrow(n, s.growthIn(v, u.files))
	})
}

// watch counts how long f has had less room than is to be left there.
func (s *headroom) watch(f *fileSystem) {
	if f.available.Load() < s.floor(f) {
		f.short.Add(1)
	} else if f.short.Swap(0) > 0 {
		s.t.segments.reopen(f)
	}
}

// order is the volumes to try for the next extent, without those in trouble
// unless all are. They take turns at the first place in proportion to the bytes
// free on each (smooth weighted round robin: each turn a volume gains its weight
// as credit, and the one with the most credit pays for all); the others follow
// by weight. One in trouble that may be probed comes first; then pass is the
// leave to do that.
func (s *headroom) order() (list []*volume, pass blockio.Pass) {
	if len(s.t.volumes) == 1 {
		return s.t.volumes, pass
	}
	var probe *volume
	for _, v := range s.t.volumes {
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
		return s.t.volumes, blockio.Pass{}
	}
	s.t.segments.roundRobin(list, s.growthIn)
	if probe != nil {
		list = slices.Insert(list, 0, probe)
	}
	return list, pass
}

// filesWorth is how many bytes the files of a database take at most for each that it
// holds: a compaction writes the bytes that it reads once more.
const filesWorth = 2

// smallFileBytes are set aside for folders, and for the growth of other files
// from one look to the next.
const smallFileBytes = 256 << 10

// occupied is how many bytes of the capacity an entry of size payload bytes
// costs: its extent, if it is to have one, and the bytes set aside for the
// database to hold the rest.
func (o *Options) occupied(size uint32) int64 {
	n := max(int64(size), 1)
	if n <= o.InlineMax {
		return filesWorth * metadata.HeldBytes(n, true)
	}
	return extentBytes(n) + filesWorth*metadata.HeldBytes(n, false)
}

// budget is the database's part of the capacity. It follows what the database
// holds, so that its files, and those of the segments, never come to more than
// the capacity:
//
//	segments' files + filesWorth x held + other files + claims <= capacity
//
// A commit claims the bytes that it adds before it writes, a segment its size
// before its file is made, both under segments.mu; a claim that does not fit is
// refused, and Trim makes room. How much the database holds its process says
// with each commit.
type budget struct {
	meta     string // folder of the database
	floor    int64  // bytes free on its file system below which nothing is written
	capacity int64
	// margin is left to deletions: a Put may not claim it. Where twice as much
	// is free Trim need not act.
	margin    int64
	segments  *segments
	available func(dir string) (int64, error) // bytes that may yet be allocated there
	bytes     atomic.Int64                    // set aside: the left side above without the segments; written under segments.mu
	held      atomic.Int64                    // by the database, at the last look
	live      atomic.Int64                    // of that, what entries hold by held; the rest is garbage
	stuck     atomic.Int64                    // garbage that the last compaction has left
	files     atomic.Int64                    // bytes of the database's files, at the last look
	others    atomic.Int64                    // bytes of all other files but the segments'
	free      atomic.Int64                    // bytes on the database's file system, at the last look

	// Guarded by segments.mu.
	claimed int64  // of bytes, by a commit under way
	claims  uint64 // how many there were
}

func newBudget(o *Options, s *segments) *budget {
	h := &budget{meta: o.Meta, available: o.free, floor: metadata.FloorBytes(o.MetaReserveBytes), capacity: o.CapacityBytes, margin: 2 * filesWorth * metadata.MemtableBytes(o.MetaReserveBytes), segments: s}
	h.others.Store(smallFileBytes)
	return h
}

// Claim sets n bytes of the database aside, if the capacity has room for them
// and the margin.
func (h *budget) Claim(n int64) bool {
	h.segments.mu.Lock()
	defer h.segments.mu.Unlock()
	if h.segments.mu.bytes+h.bytes.Load()+filesWorth*n > h.capacity-h.margin {
		return false
	}
	h.take(n)
	return true
}

// ClaimAnyway sets n bytes aside for a change that the budget never refuses. That
// is a deletion or a note of one, for which the margin is there (the committer
// compacts before it is used up), or the record of a used extent. Under a lowered
// capacity such claims go beyond it, until Trim has made room.
func (h *budget) ClaimAnyway(n int64) {
	h.segments.mu.Lock()
	defer h.segments.mu.Unlock()
	h.take(n)
}

// take is called under segments.mu.
func (h *budget) take(n int64) {
	h.bytes.Add(filesWorth * n)
	h.claimed += filesWorth * n
	h.claims++
}

// Tight reports that deletions may come to need more than the margin, and that a
// compaction would help.
func (h *budget) Tight() bool {
	return h.short(0) > h.margin+h.margin/2 && h.garbage()
}

// Settle ends the claims of a commit: what the database holds now is known. It
// is called with 0 where that did not come about.
func (h *budget) Settle(held int64) {
	h.segments.mu.Lock()
	defer h.segments.mu.Unlock()
	if held > 0 {
		h.set(held)
	}
	h.claimed = 0
	h.claims++
}

// look has measure say what the database holds, and believes it unless a commit
// has come between.
func (h *budget) look(measure func() (int64, error)) error {
	h.segments.mu.Lock()
	claims := h.claims
	h.segments.mu.Unlock()
	held, err := measure()
	if err != nil {
		return err
	}
	h.segments.mu.Lock()
	defer h.segments.mu.Unlock()
	if h.claims == claims && h.claimed == 0 {
		h.set(held)
	}
	return nil
}

// set is called under segments.mu.
func (h *budget) set(held int64) {
	h.held.Store(held)
	h.bytes.Store(filesWorth*held + h.others.Load())
}

// growing is how many bytes a new segment leaves: the database is to grow by a quarter
// before that segment would have to go again.
func (h *budget) growing() int64 {
	n := h.bytes.Load()
	return n + n/4 + 2*h.margin
}

// short is how many bytes are missing for n more of the database, and for Trim
// to have nothing to do.
func (h *budget) short(n int64) int64 {
	return h.segments.usage().files + h.bytes.Load() + filesWorth*n + 2*h.margin - h.capacity
}

// more is how many bytes the files of the database may yet grow by.
func (h *budget) more() int64 { return max(0, h.bytes.Load()-h.others.Load()-h.files.Load()) }

// Room looks how much may be written, where the files of the database may come
// to take more bytes than they do.
func (h *budget) Room() metadata.Room {
	switch free, err := h.available(h.meta); {
	case err != nil || free < h.floor/2:
		return metadata.RoomNone
	case free-h.more() < h.floor:
		return metadata.RoomDeletes
	}
	return metadata.RoomAll
}

// full reports that n more bytes would not be claimed now.
func (h *budget) full(n int64) bool { return h.short(n) > h.margin }

// garbage reports whether so much of what the database holds is deleted or
// overwritten, since the last compaction, that another is worth its while.
func (h *budget) garbage() bool {
	held := h.held.Load()
	return held-h.live.Load()-h.stuck.Load() > held/8
}

// Compacted notes what a compaction has left beside what entries hold: records
// that no entry knows of, which a table that Badger lost the deletions of brings
// back. Another compaction does not help there. It looks first: an old look says
// that more is held.
func (h *budget) Compacted(measure func() (int64, error)) error {
	_ = h.look(measure)
	held, err := measure()
	if err == nil {
		h.stuck.Store(max(0, held-h.live.Load()))
	}
	return err
}

// heldFor is how many bytes the database holds for an entry.
func heldFor(e ledger.Entry) int64 {
	return metadata.HeldBytes(int64(e.Size), location(e.Value.A).inline())
}

// lookAtOthers measures the files in v beside the database and the bytes of the
// segments: also the file system's own notes on where their blocks are.
func (s *segments) lookAtOthers(v *volume) {
	total := otherBytes(v.dir)
	for _, g := range s.listOf(v) {
		if info, err := v.at.Stat(segmentName(g.number)); err == nil {
			total += max(0, folders.AllocatedBytes(info)-g.blocks)
		}
	}
	v.others.Store(total)
}

// otherBytes is how many bytes the files in a folder occupy, but for segments; of
// its folders only a database that was moved aside counts.
func otherBytes(dir string) (total int64) {
	names, _ := os.ReadDir(dir) // one that is gone is found by lookAtFolders
	for _, name := range names {
		if info, err := name.Info(); err == nil && !name.IsDir() && !strings.HasPrefix(name.Name(), folders.SegmentPrefix) {
			total += folders.AllocatedBytes(info)
		}
	}
	aside, _ := folders.OccupiedBelow(filepath.Join(dir, metadata.DamagedName))
	return total + aside
}
