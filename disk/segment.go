package disk

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/tier"
)

// maxSegmentBytes is the most that a location can address: 2^31 units of 4 KiB.
const maxSegmentBytes = alignBytes << 31

// segment is one extent file. Its number is not used again while there are
// others, so that a stale record does not point into a younger file.
//
//	Open ──▶ unscanned ──Recover──▶ in use ◀────────────────── grow
//	             │                  │  ▲  │
//	             │ no entry         │  │  └─ empty at two looks in a row ─▶ removed
//	             ▼                  │  │                                      ▲
//	          removed               │  └─ the room is not needed any more ─┐  │
//	                                ▼                                      │  │
//	                             draining ─────────────────────────────────┘  │
//	                                └─────────────── its last extent is free ─┘
//
// Unscanned it has no allocator (free is nil): it is read, and takes no extents.
// Draining it takes none either: others, or the database, need its room. Whether
// its writes are on the device is a state of its own (syncState).
type segment struct {
	number uint32
	volume *volume
	path   string
	size   int64 // that can be addressed
	blocks int64 // that it occupies
	file   blockio.File

	syncState syncState

	// Guarded by segments.mu.
	free *arena.Allocator // nil until recovery has marked the extents in use
	idle bool             // was empty when the maintenance came by last
	// draining says that it takes no more extents and goes once it is empty.
	draining bool
}

// used is how many bytes cannot be handed out now. The owner holds segments.mu.
func (s *segment) used() int64 {
	if s.free == nil {
		return s.size
	}
	return s.free.UsedBytes()
}

// segments is the set of extent files and the space in them.
type segments struct {
	volumes   []*volume
	size      int64         // of a new segment
	written   atomic.Int64  // bytes, by transfers
	freed     chan struct{} // told when a tombstone waits
	unwritten atomic.Int64  // tombstones of extents that were freed, until they are written
	syncFails atomic.Uint64 // syncs of segments that failed
	seq       atomic.Uint64 // last number given; higher than all of earlier epochs
	mu        struct {
		sync.Mutex       // guards the volumes' lists too
		bytes      int64 // of all files, those that are being made included
		// readers counts the readers of an extent, by its packed location. An
		// extent freed meanwhile waits in freeing with its size.
		readers map[uint64]int
		freeing map[uint64]int64
		tombs   []tombstone // of extents that wait for it
	}
}

// openSegments opens the segments that an earlier process left in the volumes.
func openSegments(volumes []*volume, size int64, epoch uint64) (*segments, error) {
	s := &segments{volumes: volumes, size: size, freed: make(chan struct{}, 1)}
	s.seq.Store(epoch << folders.EpochShift)
	s.mu.readers, s.mu.freeing = make(map[uint64]int), make(map[uint64]int64)
	for _, v := range volumes {
		if err := s.openVolume(v); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

func (s *segments) openVolume(v *volume) error {
	names, err := v.at.Names()
	if err != nil {
		return fmt.Errorf("disk: list segments: %w", err)
	}
	for _, name := range names {
		n, err := strconv.ParseUint(strings.TrimPrefix(name, folders.SegmentPrefix), 10, segmentBits)
		if err != nil || n == 0 || name != segmentName(uint32(n)) {
			continue
		}
		if err := s.openOld(v, uint32(n)); err != nil {
			return err
		}
	}
	return nil
}

// segmentName is the name of the file; its folder tells the rest of the number.
func segmentName(n uint32) string { return fmt.Sprintf("%s%08d", folders.SegmentPrefix, n&maxSegments) }

func (s *segments) openOld(v *volume, n uint32) error {
	name := segmentName(n)
	f, err := v.folder.Open(name)
	if err != nil {
		return fmt.Errorf("disk: open segment: %w", err)
	}
	info, err := v.at.Stat(name)
	if err != nil {
		_ = f.Close()
		return fmt.Errorf("disk: open segment: %w", err)
	}
	size := arena.RoundDown(min(info.Size(), maxSegmentBytes))
	// A file with holes (as a copy may have) counts with the size that it may grow
	// to. The blocks of a file system's own notes on a file do not count, as they
	// did not when the segment was made: a few KiB would else be a tier too large.
	g := &segment{number: v.number(n), volume: v, path: v.at.Path(name), size: size, blocks: info.Size(), file: f}
	g.syncState.wrote(1) // an earlier process may have left something unsynced
	v.insert(g)
	s.mu.bytes += info.Size()
	v.last = max(v.last, n)
	return nil
}

func (s *segments) find(number uint32) *segment {
	for _, v := range s.volumes {
		if v.index == int(number>>segmentBits) {
			if i, ok := v.search(number); ok {
				return v.list[i]
			}
		}
	}
	return nil
}

// oldSize is the size of a segment that an earlier process left, or 0.
func (s *segments) oldSize(number uint32) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.find(number); g != nil && g.free == nil {
		return g.size
	}
	return 0
}

// grant is an extent for a payload, and the fields of its header.
type grant struct {
	seg    *segment
	extent database.Extent
	void   int64
	seq    uint64
}

// alloc takes an extent of n bytes out of the segments that v has.
func (s *segments) alloc(v *volume, n int64) (grant, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range v.list {
		at := (v.cursor + i) % len(v.list)
		g := v.list[at]
		if g.free == nil || g.draining {
			continue
		}
		if off, ok := g.free.Alloc(n); ok {
			v.cursor, g.idle = at, false
			x := database.Extent{Segment: g.number, Offset: off, Bytes: uint32(n)}
			return grant{g, x, g.free.FreeFrom(x.End()), s.seq.Add(1)}, true
		}
	}
	return grant{}, false
}

// grow adds a segment to v that holds n, or fails with ErrNoSpace. room says
// how many bytes it may have at most beside what the files have, and may not
// block. It allocates the file's blocks: call it where waiting is allowed.
func (s *segments) grow(v *volume, n int64, room func(files int64) int64) error {
	s.mu.Lock()
	left := room(s.mu.bytes)
	if !s.canGrow(n, left) {
		s.mu.Unlock()
		return tier.ErrNoSpace
	}
	size := arena.RoundDown(min(s.size, left))
	number, ok := v.newNumber()
	if ok {
		s.mu.bytes += size // taken, so that no other volume takes it
	}
	s.mu.Unlock()
	if !ok {
		return tier.ErrNoSpace
	}
	name := segmentName(number)
	f, err := v.folder.Create(name, size)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.mu.bytes -= size
		if folders.IsFull(err) {
			return fmt.Errorf("%w: %w", tier.ErrNoSpace, err)
		}
		return err
	}
	v.cursor = v.insert(&segment{number: number, volume: v, path: v.at.Path(name), size: size, blocks: size, file: f, free: arena.NewAllocator(size)})
	return nil
}

// canGrow reports whether a segment in room bytes would hold n. A sliver at
// the end of the capacity is not worth a file.
func (s *segments) canGrow(n, room int64) bool {
	return arena.RoundDown(min(s.size, room)) >= max(arena.RoundUp(n), s.size/16)
}

// removeIdle removes the files of v that are empty and make way, and those that were empty
// at the last call too: a busy tier does not make and remove the same segment over and over.
func (s *segments) removeIdle(v *volume) error {
	return s.remove(v, func(g *segment) bool {
		was := g.idle
		g.idle = g.empty()
		return g.idle && (was || g.draining)
	})
}

// removeDrained removes the files of v that are empty and make way. Another that is empty may
// be one that a put has just made.
func (s *segments) removeDrained(v *volume) error {
	return s.remove(v, func(g *segment) bool { return g.draining && g.empty() })
}

func (s *segments) remove(v *volume, which func(*segment) bool) error {
	s.mu.Lock()
	var some []*segment
	v.list = slices.DeleteFunc(v.list, func(g *segment) bool {
		gone := which(g)
		if gone {
			some = append(some, g)
		}
		return gone
	})
	s.mu.Unlock()
	return s.unlink(some)
}

// empty reports whether nothing lies in a segment. The segments' lock is held.
func (g *segment) empty() bool { return g.free != nil && g.free.UsedBytes() == 0 }

// unlink removes files that are no longer on the list. Their bytes count
// until they are gone.
func (s *segments) unlink(list []*segment) error {
	var first error
	for _, g := range list {
		_ = g.file.Close()
		if err := g.volume.at.Remove(segmentName(g.number)); err != nil {
			first = cmp.Or(first, fmt.Errorf("disk: remove empty segment: %w", err))
			continue // it still takes its room; the next start tries again
		}
		s.mu.Lock()
		s.mu.bytes -= g.blocks
		s.mu.Unlock()
	}
	return first
}

// usage is that of all volumes. The largest payload that fits lies in one that takes writes.
func (s *segments) usage() (all usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.volumes {
		u := v.usage()
		all.segments += u.segments
		all.used += u.used
		if v.dev.Writing.Well() {
			all.largest = max(all.largest, u.largest)
		}
	}
	all.files = s.mu.bytes
	return all
}

// usageOf is that of one volume.
func (s *segments) usageOf(v *volume) usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return v.usage()
}

// all returns the present segments.
func (s *segments) all() (list []*segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.volumes {
		list = append(list, v.list...)
	}
	return list
}

// listOf returns the present segments of v.
func (s *segments) listOf(v *volume) []*segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(v.list)
}

func (s *segments) close() {
	for _, g := range s.all() {
		_ = g.file.Close()
	}
}

// location packs where a payload lies into one word of the ledger: the segment, and
// the first page of its extent, which begins with a header.
type location uint64

// A segment's number says in its upper bits in which path of the set it lies,
// so that a path that comes back brings no number that is taken.
const (
	segmentBits = 24 // of the rest
	maxSegments = 1<<segmentBits - 1
)

// inlined is the location of a payload in Badger. No segment has number 0.
const inlined location = 0

func locate(e database.Extent) location {
	return location(uint64(e.Segment)<<32 | uint64(e.Offset/alignBytes))
}

func (l location) inline() bool    { return l == inlined }
func (l location) segment() uint32 { return uint32(l >> 32) }

// offset is where the extent begins, payload where the payload does.
func (l location) offset() int64  { return int64(uint32(l)) * alignBytes }
func (l location) payload() int64 { return l.offset() + database.HeaderBytes }

// extentBytes is the size of the extent for a payload of n bytes.
func extentBytes(n int64) int64 { return database.HeaderBytes + arena.RoundUp(n) }

// acquire counts a reader of e, whose location find names. Under one lock with
// the look-up that found it, so that no free comes between.
func (s *segments) acquire(find func() (location, bool)) (location, *segment, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	loc, ok := find()
	if !ok || loc.inline() {
		return loc, nil, ok
	}
	g := s.find(loc.segment())
	if g == nil {
		return loc, nil, false
	}
	s.mu.readers[uint64(loc)]++
	return loc, g, true
}

// retain counts the same reader once more.
func (s *segments) retain(loc location) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.readers[uint64(loc)]++
}

// release ends one reader.
func (s *segments) release(loc location) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.readers[uint64(loc)]--; s.mu.readers[uint64(loc)] > 0 {
		return
	}
	delete(s.mu.readers, uint64(loc))
	if n, ok := s.mu.freeing[uint64(loc)]; ok {
		delete(s.mu.freeing, uint64(loc))
		if g := s.find(loc.segment()); g != nil && g.free != nil {
			g.free.Free(loc.offset(), extentBytes(n))
		}
	}
}

// free makes the extent of a payload of n bytes reusable, once no reader has
// it and its header says so (see tombWriter.flush). The deletion is in Badger, or no record was.
func (s *segments) free(loc location, n int64) {
	if loc.inline() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tombs = append(s.mu.tombs, s.tombstone(loc, n))
	s.unwritten.Add(1)
	s.mu.readers[uint64(loc)]++ // until it is written
	s.mu.freeing[uint64(loc)] = n
	base.Poke(s.freed)
}
