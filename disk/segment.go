package disk

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/extent"
	"github.com/kvstored/kvstored/internal/record"
	"github.com/kvstored/kvstored/tier"
)

const segmentPrefix = "seg-"

// maxSegmentBytes is what a location can address: 2^32 units of 4 KiB.
const maxSegmentBytes = alignBytes << 32

// segment is one extent file. Its number is never used again, so that a stale
// record cannot point into a younger file.
type segment struct {
	number uint32
	path   string
	size   int64 // that can be addressed
	blocks int64 // that it occupies
	file   file
	dirty  atomic.Bool // written since the last sync

	// Guarded by segments.mu.
	free *extent.Allocator // nil until recovery has marked what is in use
	idle bool              // was empty when the maintenance came by last
}

// used is what cannot be handed out now. The owner holds segments.mu.
func (s *segment) used() int64 {
	if s.free == nil {
		return s.size
	}
	return s.free.UsedBytes()
}

// segments is the set of extent files and the space in them.
type segments struct {
	dir     string
	folder  folder
	size    int64        // of a new segment
	written atomic.Int64 // bytes, by transfers
	mu      struct {
		sync.Mutex
		list   []*segment // by number
		next   uint32     // number of the next segment
		cursor int        // where the last extent was found
		bytes  int64      // of all files
		// readers counts who reads an extent, by its packed location. An
		// extent freed meanwhile waits in leaving with its size.
		readers map[uint64]int
		leaving map[uint64]int64
	}
	growing chan struct{} // held by whoever makes a segment
}

// openSegments opens what an earlier process left in dir.
func openSegments(dir string, f folder, size int64) (*segments, error) {
	s := &segments{dir: dir, folder: f, size: size, growing: make(chan struct{}, 1)}
	s.mu.readers, s.mu.leaving = make(map[uint64]int), make(map[uint64]int64)
	s.mu.next = 1
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("disk: list segments: %w", err)
	}
	for _, name := range names {
		n, err := strconv.ParseUint(strings.TrimPrefix(name.Name(), segmentPrefix), 10, 32)
		if err != nil || n == 0 || name.Name() != segmentName(uint32(n)) {
			continue
		}
		if err := s.openOld(uint32(n)); err != nil {
			s.close()
			return nil, err
		}
	}
	slices.SortFunc(s.mu.list, func(a, b *segment) int { return int(int64(a.number) - int64(b.number)) })
	return s, nil
}

func segmentName(n uint32) string { return fmt.Sprintf("%s%08d", segmentPrefix, n) }

func (s *segments) openOld(n uint32) error {
	path := filepath.Join(s.dir, segmentName(n))
	f, err := s.folder.open(path)
	if err != nil {
		return fmt.Errorf("disk: open segment: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		_ = f.Close()
		return fmt.Errorf("disk: open segment: %w", err)
	}
	size := min(info.Size(), maxSegmentBytes) &^ (alignBytes - 1)
	// A file with holes (somebody copied it) counts as what it may grow to.
	blocks := max(info.Size(), allocatedBytes(info))
	s.mu.list = append(s.mu.list, &segment{number: n, path: path, size: size, blocks: blocks, file: f})
	s.mu.bytes += blocks
	s.mu.next = max(s.mu.next, n+1)
	return nil
}

func (s *segments) find(number uint32) *segment {
	i, ok := slices.BinarySearchFunc(s.mu.list, number, func(g *segment, n uint32) int {
		return int(int64(g.number) - int64(n))
	})
	if !ok {
		return nil
	}
	return s.mu.list[i]
}

// alloc takes an extent for a payload of n bytes out of the segments there are.
func (s *segments) alloc(n uint32) (*segment, record.Extent, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.mu.list {
		at := (s.mu.cursor + i) % len(s.mu.list)
		g := s.mu.list[at]
		if g.free == nil {
			continue
		}
		if off, ok := g.free.Alloc(int64(n)); ok {
			s.mu.cursor, g.idle = at, false
			return g, record.Extent{Segment: g.number, Offset: off, Bytes: uint32(roundUp(int64(n)))}, true
		}
	}
	return nil, record.Extent{}, false
}

// grow adds a segment of at most room bytes that holds n, or fails with
// ErrNoSpace. It allocates the file's blocks: call it where waiting is allowed.
func (s *segments) grow(n, room int64) error {
	if !s.canGrow(n, room) {
		return tier.ErrNoSpace
	}
	size := min(s.size, room) &^ (alignBytes - 1)
	s.mu.Lock()
	number := s.mu.next
	s.mu.next++
	s.mu.Unlock()
	path := filepath.Join(s.dir, segmentName(number))
	f, err := s.folder.create(path, size)
	if err != nil {
		if isNoSpace(err) {
			return fmt.Errorf("%w: %w", tier.ErrNoSpace, err)
		}
		return err
	}
	g := &segment{number: number, path: path, size: size, blocks: size, file: f, free: extent.New(size)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.list = append(s.mu.list, g) // grow runs alone, so numbers ascend
	s.mu.cursor = len(s.mu.list) - 1
	s.mu.bytes += size
	return nil
}

// canGrow reports whether a segment in room bytes would hold n. A sliver at
// the end of the capacity is not worth a file.
func (s *segments) canGrow(n, room int64) bool {
	return min(s.size, room)&^(alignBytes-1) >= max(roundUp(n), s.size/16)
}

// lockGrowth makes the caller the only one that may grow.
func (s *segments) lockGrowth(ctx context.Context) error {
	select {
	case s.growing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *segments) unlockGrowth() { <-s.growing }

// removeIdle removes the files that were empty at the last call too, so that
// a busy tier does not make and remove the same segment over and over.
func (s *segments) removeIdle() error {
	s.mu.Lock()
	var idle []*segment
	s.mu.list = slices.DeleteFunc(s.mu.list, func(g *segment) bool {
		empty := g.free != nil && g.free.UsedBytes() == 0
		if empty && g.idle {
			idle = append(idle, g)
			return true
		}
		g.idle = empty
		return false
	})
	s.mu.Unlock()
	return s.unlink(idle)
}

// unlink removes files that are no longer on the list. Their bytes count
// until they are gone.
func (s *segments) unlink(list []*segment) error {
	var first error
	for _, g := range list {
		_ = g.file.Close()
		if err := os.Remove(g.path); err != nil && !os.IsNotExist(err) {
			first = cmp.Or(first, fmt.Errorf("disk: remove empty segment: %w", err))
			continue // it still takes its room; the next start tries again
		}
		s.mu.Lock()
		s.mu.bytes -= g.blocks
		s.mu.Unlock()
	}
	return first
}

// usage is what the files occupy, what of that is in use, and the largest
// payload that fits without another file.
func (s *segments) usage() (files, used, largest int64, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.mu.list {
		used += g.used()
		if g.free != nil {
			largest = max(largest, g.free.LargestFree())
		}
	}
	return s.mu.bytes, used, largest, len(s.mu.list)
}

// all returns the present segments.
func (s *segments) all() []*segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.list)
}

func (s *segments) close() {
	for _, g := range s.all() {
		_ = g.file.Close()
	}
}
