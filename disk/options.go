package disk

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

// alignBytes is the granularity of extents, and what direct I/O wants of
// offsets, lengths and memory on every device in use (the largest logical
// block size is 4 KiB).
const alignBytes = arena.AlignBytes

const defaultIOTimeout = 10 * time.Second

// The least that a tier can do with.
const (
	minReserveBytes  = 12 << 20
	minCapacityBytes = 32 << 20
	minEntries       = 64 // Trim evicts in shares of them
)

// Options configure a Tier. Paths, CapacityBytes and Policy are required.
type Options struct {
	// Paths are the directories of the segment files, made if missing. New
	// extents go to each in proportion to its free room.
	Paths []string
	Meta  string // directory in which Badger's lives; default the first path

	// CapacityBytes bounds the blocks allocated under Paths and Meta, Badger
	// included through MetaReserveBytes.
	CapacityBytes int64
	// Entries is how many there may be, which bounds the memory for knowledge
	// of them, however small they are; 0 is as many as CapacityBytes has room for.
	// A chunk whose parent is absent counts twice.
	Entries int
	// MetaReserveBytes is the least that is set aside for Badger: segments
	// leave it, and more where Badger needs more. The default is 32 MiB plus
	// 1/128 of the capacity (an entry takes about 300 bytes while Badger
	// compacts, so 64 KiB payloads need about 1/200), at most 1/8 of it, and
	// 16 MiB at least.
	MetaReserveBytes int64
	// MinFreeBytes of each file system are left to others: nothing is
	// preallocated below it.
	MinFreeBytes int64

	Policy        string         // a name of package policy
	Quotas        []ledger.Quota // of groups of spaces; see Assign
	DeferTraining bool           // see ledger.Options
	HighWatermark float64        // share of the room for extents at which Trim starts; default tier.HighWatermark
	LowWatermark  float64        // and to which it goes down; default tier.LowWatermark

	InlineMax    int64 // payloads up to this size lie in Badger; 0 = none
	SegmentBytes int64 // size of a new segment file; default DefaultSegment

	// IOTimeout bounds how long an operation waits while the device ends
	// nothing at all; default 10 s.
	IOTimeout time.Duration
	IODepth   int  // pieces of I/O under way at once in each path; default what a probe of it finds
	Buffered  bool // never use direct I/O

	// Database opens the database; nil: database.Open, which starts a process for it.
	Database database.Opener

	// Ages says which entries have a bound on their age, and is told of those that an
	// earlier process left; nil: none has.
	Ages *stale.Book

	// Distrusted is kept beside the database; nil: no list is.
	Distrusted *stale.Distrusted

	Log zerolog.Logger

	// Of all instances of a Tier; nil for its own.
	count   *counters
	minFree *atomic.Int64 // MinFreeBytes as it is now

	free  func(dir string) (int64, error) // bytes that may yet be allocated there; nil: the file system's answer
	kinds []blockio.Folder                // of the first paths; nil: the system's
	pulse io.WriterAt                     // of the database; nil: a lock
}

// DefaultSegment is how many bytes a segment of a tier of so many has where it is not told:
// an eighth, 64 MiB at least and 1 GiB at most.
func DefaultSegment(capacityBytes int64) int64 { return min(max(capacityBytes/8, 64<<20), 1<<30) }

// DefaultMetaReserve is how many bytes a tier of so many sets aside for Badger
// where it is not told.
func DefaultMetaReserve(capacityBytes int64) int64 {
	return max(16<<20, min(capacityBytes/8, 32<<20+capacityBytes/128))
}

// DatabaseBytes is how much memory the process of the database may take for a
// tier of so many bytes.
func DatabaseBytes(capacityBytes int64) int64 {
	return database.MemoryLimit(metadata.MemtableBytes(DefaultMetaReserve(capacityBytes)))
}

// withDefaults gives zero fields their defaults and validates the options.
func (o Options) withDefaults() (Options, error) {
	if o.Meta == "" && len(o.Paths) > 0 {
		o.Meta = o.Paths[0]
	}
	o.MetaReserveBytes = cmp.Or(o.MetaReserveBytes, DefaultMetaReserve(o.CapacityBytes))
	o.SegmentBytes = cmp.Or(o.SegmentBytes, DefaultSegment(o.CapacityBytes))
	o.HighWatermark = cmp.Or(o.HighWatermark, tier.HighWatermark)
	o.LowWatermark = cmp.Or(o.LowWatermark, min(tier.LowWatermark, o.HighWatermark))
	o.IOTimeout = cmp.Or(o.IOTimeout, defaultIOTimeout)
	if o.Database == nil {
		o.Database = database.Open
	}
	if o.free == nil {
		o.free = folders.AvailableBytes
	}
	if o.count == nil {
		o.count = new(counters)
	}
	if o.minFree == nil {
		o.minFree = new(atomic.Int64)
		o.minFree.Store(o.MinFreeBytes)
	}
	// A segment is never larger than all the room for extents.
	o.SegmentBytes = arena.RoundDown(min(o.SegmentBytes, o.CapacityBytes-o.MetaReserveBytes))
	return o, o.check()
}

func (o *Options) check() error {
	switch {
	case len(o.Paths) == 0 || len(o.Paths) > folders.MaxPaths || slices.Contains(o.Paths, ""):
		return badOption("paths", fmt.Sprintf("%q", o.Paths), fmt.Sprintf("1 to %d directories", folders.MaxPaths))
	case !slices.Contains(policy.All(), o.Policy):
		return badOption("policy", o.Policy, fmt.Sprintf("one of %v", policy.All()))
	case !(o.LowWatermark > 0 && o.LowWatermark <= o.HighWatermark && o.HighWatermark <= 1):
		return badOption("watermarks", []float64{o.LowWatermark, o.HighWatermark}, "0 < low <= high <= 1")
	case o.IOTimeout < 0:
		return badOption("io timeout", o.IOTimeout, "above 0")
	case o.IODepth < 0 || o.IODepth > 64:
		return badOption("io depth", o.IODepth, "1 to 64, or 0 to find it")
	}
	return o.checkSizes()
}

func (o *Options) checkSizes() error {
	switch {
	case o.CapacityBytes < minCapacityBytes:
		return badOption("capacity", o.CapacityBytes, fmt.Sprintf("at least %d bytes", int64(minCapacityBytes)))
	case o.MetaReserveBytes < minReserveBytes || o.MetaReserveBytes > o.CapacityBytes/2:
		return badOption("meta reserve", o.MetaReserveBytes, fmt.Sprintf("%d bytes to half the capacity", int64(minReserveBytes)))
	case o.Entries != 0 && o.Entries < minEntries:
		return badOption("entries", o.Entries, fmt.Sprintf("at least %d, or 0 for any number", minEntries))
	case o.MinFreeBytes < 0:
		return badOption("min free", o.MinFreeBytes, "0 or more")
	case o.InlineMax < 0 || o.InlineMax > metadata.MaxInlineBytes:
		return badOption("inline max", o.InlineMax, fmt.Sprintf("0 to %d", metadata.MaxInlineBytes))
	case o.SegmentBytes < alignBytes || o.SegmentBytes > maxSegmentBytes:
		return badOption("segment size", o.SegmentBytes, fmt.Sprintf("%d to %d", alignBytes, int64(maxSegmentBytes)))
	}
	return nil
}

func badOption(what string, is any, want string) error {
	return fmt.Errorf("disk: %s is %v, want %s", what, is, want)
}

// FreeBytes is the free space of the file system that a path lies on, or will once it
// is made.
func FreeBytes(path string) (int64, error) {
	dir, err := folders.NearestExisting(path)
	if err != nil {
		return 0, err
	}
	return folders.AvailableBytes(dir)
}

// SameFileSystem reports whether two paths lie on one, or will.
func SameFileSystem(a, b string) bool {
	x, errX := folders.NearestExisting(a)
	y, errY := folders.NearestExisting(b)
	return errX == nil && errY == nil && folders.SameDevice(x, y)
}

// OccupiedBytes is what a folder and all below it take of their file system; 0 without
// it.
func OccupiedBytes(dir string) (int64, error) { return folders.OccupiedBelow(dir) }
