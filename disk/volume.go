package disk

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/tier"
)

// volume is one path: a folder of segment files, and the device below it.
type volume struct {
	index   int // in the set of paths that belong together, by its marker and not by its place in Options
	dir     string
	at      *folders.Folder
	folder  blockio.Folder
	dev     *blockio.Device
	fs      *fileSystem
	others  atomic.Int64 // bytes; see lookAtOthers
	syncing turn         // of the one sync that works
	probed  [2]uint64    // bytes read and written a second, as a probe found; 0: there was none
	stale   bool         // it was not there at the last start: its entries are not to come back

	// Guarded by segments.mu.
	list   []*segment // by number
	last   uint32     // number of the youngest segment, without the index
	cursor int        // where the last extent was found
	credit int64      // see headroom.order
}

// volumes are the folders of a tier, by index.
type volumes []*volume

// fileSystem is the state that volumes on the same file system share.
type fileSystem struct {
	dir       string // somewhere on it
	free      func(dir string) (int64, error)
	hasMeta   bool         // the database lies there
	available atomic.Int64 // bytes, at the last look
	short     atomic.Int64 // looks in a row that found less than is to be left
	slack     atomic.Int64 // bytes that new segments leave beside that, after some were given back
	growing   turn         // of the Put that makes a segment there
}

// number is the whole number of the n-th segment.
func (v *volume) number(n uint32) uint32 { return uint32(v.index)<<segmentBits | n }

// newNumber is one that no segment of v has, preferably none ever had; false
// when there is none. The owner holds segments.mu.
func (v *volume) newNumber() (number uint32, ok bool) {
	for range maxSegments {
		v.last = v.last%maxSegments + 1
		if _, taken := v.search(v.number(v.last)); !taken {
			return v.number(v.last), true
		}
	}
	return 0, false
}

func (v *volume) search(number uint32) (int, bool) {
	return slices.BinarySearchFunc(v.list, number, func(g *segment, n uint32) int {
		return int(int64(g.number) - int64(n))
	})
}

// insert returns where g is now. The owner holds segments.mu.
func (v *volume) insert(g *segment) int {
	i, _ := v.search(g.number)
	v.list = slices.Insert(v.list, i, g)
	return i
}

// usage is what one volume has, or all.
type usage struct {
	segments   int
	files      int64 // bytes of all of them, those that are being made included
	used, free int64 // of these
	largest    int64 // payload that fits without another file
}

// usage counts. The owner holds segments.mu.
func (v *volume) usage() (u usage) {
	u.segments = len(v.list)
	for _, g := range v.list {
		u.files += g.blocks
		u.used += g.used()
		if g.free != nil && !g.draining {
			u.free += g.free.FreeBytes()
			u.largest = max(u.largest, g.free.LargestFree())
		}
	}
	return u
}

// makeVolumes gives each claimed folder its file system and its device. The database has the
// device of a path on its file system, or one of its own.
func (o opening) makeVolumes(dirs []folders.Claimed) error {
	t := o.t
	for i, c := range dirs {
		v := &volume{index: c.Index, dir: c.Dir, at: c.Folder, stale: c.Stale, syncing: newTurn()}
		if i < len(t.o.kinds) {
			v.folder = t.o.kinds[i]
		}
		if err := o.makeVolume(v); err != nil {
			return err
		}
		t.volumes = append(t.volumes, v)
	}
	if len(t.volumes) > 1 {
		for _, v := range t.volumes {
			name := func(what string) zerolog.Logger {
				return t.log.With().Str("path", v.dir).Str("direction", what).Logger()
			}
			v.dev.Reading, v.dev.Writing = blockio.NewHealth(name("read")), blockio.NewHealth(name("write"))
		}
	}
	if i := slices.IndexFunc(t.volumes, func(v *volume) bool { return v.fs.hasMeta }); i >= 0 {
		t.metaDev = t.volumes[i].dev
	} else {
		t.metaDev = blockio.New(defaultIODepth, t.o.IOTimeout)
	}
	return nil
}

func (o opening) makeVolume(v *volume) error {
	t := o.t
	if v.folder == nil {
		own, err := blockio.NewFolder(v.at, t.o.Buffered)
		if err != nil {
			return err
		}
		if !own.IsDirect && !t.o.Buffered {
			t.log.Warn().Str("path", v.dir).Msg("the file system refuses direct I/O; using buffered I/O")
		}
		v.folder = own
	}
	v.fs = &fileSystem{dir: v.dir, free: t.o.free, hasMeta: folders.SameDevice(v.dir, t.o.Meta), growing: newTurn()}
	for _, other := range t.volumes {
		if folders.SameDevice(v.dir, other.dir) {
			v.fs = other.fs
			t.log.Warn().Str("path", v.dir).Str("other", other.dir).
				Msg("two paths of the disk tier lie on one file system: that gains nothing")
		}
	}
	depth, err := o.depth(v)
	v.dev = blockio.New(depth, t.o.IOTimeout)
	return err
}

// fileSystems are those of the volumes, each once.
func (l volumes) fileSystems() (list []*fileSystem) {
	for _, v := range l {
		if !slices.Contains(list, v.fs) {
			list = append(list, v.fs)
		}
	}
	return list
}

// roundRobin sorts list for headroom.order.
func (s *segments) roundRobin(list []*volume, growth func(v *volume, files int64) int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	weight := make(map[*volume]int64, len(list))
	var all int64
	for _, v := range list {
		weight[v] = v.usage().free + growth(v, s.mu.bytes)
		v.credit += weight[v]
		all += weight[v]
	}
	slices.SortFunc(list, func(a, b *volume) int { return cmp.Compare(b.credit, a.credit) })
	list[0].credit -= all
	slices.SortFunc(list[1:], func(a, b *volume) int { return cmp.Compare(weight[b], weight[a]) })
}

// blame makes of the trouble of one path what a tier says that goes on without
// it: ErrOff, which opens no breaker. If no other path goes in that direction
// the trouble is the tier's.
func (l volumes) blame(v *volume, write bool, err error) error {
	if err == nil || !blockio.IsFault(err) || !l.othersWork(v, write) {
		return err
	}
	return fmt.Errorf("%v: %w", err, tier.ErrOff) //nolint:errorlint // else it would still be ErrHung
}

func (l volumes) othersWork(v *volume, write bool) bool {
	return slices.ContainsFunc(l, func(o *volume) bool {
		h := o.dev.Reading
		if write {
			h = o.dev.Writing
		}
		return o != v && h.Well()
	})
}
