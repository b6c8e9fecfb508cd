package disk

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/rs/zerolog"
)

// volume is one path: a folder of segment files, and the device below it.
type volume struct {
	index  int // in the set of paths that belong together, whatever their order
	dir    string
	folder folder
	dev    *device
	fs     *fileSystem
	others atomic.Int64 // bytes; see lookAtOthers
	stale  bool         // it was not there at the last start: what lies here is not to come back

	// Guarded by segments.mu.
	list   []*segment // by number
	last   uint32     // number of the youngest segment, without the index
	cursor int        // where the last extent was found
	credit int64      // see Tier.order
}

// fileSystem is what volumes on the same one share.
type fileSystem struct {
	dir       string        // somewhere on it
	hasMeta   bool          // the database lies there
	available atomic.Int64  // bytes, at the last look
	short     atomic.Int64  // looks in a row that found less than is to be left
	slack     atomic.Int64  // bytes that new segments leave beside that, after some were given back
	growing   chan struct{} // held by whoever makes a segment there
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

// usage is what one volume has.
type usage struct {
	segments                   int
	files, used, free, largest int64
}

// usage counts. The owner holds segments.mu.
func (v *volume) usage() (u usage) {
	u.segments = len(v.list)
	for _, g := range v.list {
		u.files += g.blocks
		u.used += g.used()
		if g.free != nil && !g.leaving {
			u.free += g.free.FreeBytes()
			u.largest = max(u.largest, g.free.LargestFree())
		}
	}
	return u
}

// makeVolumes gives each claimed folder its file system and its device. Where
// folders is shorter than dirs the system's are used.
func (t *Tier) makeVolumes(dirs []claimed, folders []folder) error {
	for i, c := range dirs {
		v := &volume{index: c.index, dir: c.dir, stale: c.stale}
		if i < len(folders) {
			v.folder = folders[i]
		}
		if err := t.makeVolume(v); err != nil {
			return err
		}
		t.volumes = append(t.volumes, v)
	}
	if len(t.volumes) > 1 {
		for _, v := range t.volumes {
			name := func(what string) zerolog.Logger {
				return t.log.With().Str("path", v.dir).Str("direction", what).Logger()
			}
			v.dev.reading, v.dev.writing = &health{log: name("read")}, &health{log: name("write")}
		}
	}
	t.metaDev = t.deviceOfMeta()
	return nil
}

func (t *Tier) makeVolume(v *volume) error {
	if v.folder == nil {
		own, err := newFolder(v.dir, t.o.Buffered)
		if err != nil {
			return err
		}
		if !own.isDirect && !t.o.Buffered {
			t.log.Warn().Str("path", v.dir).Msg("the file system refuses direct I/O; using buffered I/O")
		}
		v.folder = own
	}
	v.fs = &fileSystem{dir: v.dir, hasMeta: sameFileSystem(v.dir, t.o.Meta), growing: make(chan struct{}, 1)}
	for _, other := range t.volumes {
		if sameFileSystem(v.dir, other.dir) {
			v.fs = other.fs
			t.log.Warn().Str("path", v.dir).Str("other", other.dir).
				Msg("two paths of the disk tier lie on one file system: that gains nothing")
		}
	}
	depth, err := t.depth(v)
	v.dev = newDevice(depth, t.o.IOTimeout)
	return err
}

// deviceOfMeta is what works for the database: the device of a path on the
// same file system, or one of its own.
func (t *Tier) deviceOfMeta() *device {
	for _, v := range t.volumes {
		if v.fs.hasMeta {
			return v.dev
		}
	}
	return newDevice(defaultIODepth, t.o.IOTimeout)
}

// devices are all there are, each once.
func (t *Tier) devices() (list []*device) {
	for _, v := range t.volumes {
		list = append(list, v.dev)
	}
	if t.metaDev != nil && !slices.Contains(list, t.metaDev) {
		list = append(list, t.metaDev)
	}
	return list
}

// fileSystems are those of the volumes, each once.
func (t *Tier) fileSystems() (list []*fileSystem) {
	for _, v := range t.volumes {
		if !slices.Contains(list, v.fs) {
			list = append(list, v.fs)
		}
	}
	return list
}

// order is the volumes to try for the next extent, without those in trouble
// unless all are. The first ones take turns in proportion to what is free on
// each (smooth weighted round robin: each turn everybody gains its weight, and
// the one that has most pays for all), the others follow by what they have.
// One in trouble that may be probed comes first.
func (t *Tier) order() []*volume {
	if len(t.volumes) == 1 {
		return t.volumes
	}
	var list []*volume
	var probe *volume
	for _, v := range t.volumes {
		switch {
		case v.dev.writing.well():
			list = append(list, v)
		case probe == nil && v.dev.writing.usable():
			probe = v
		}
	}
	if len(list) == 0 {
		return t.volumes
	}
	t.segments.turns(list, t.growthIn)
	if probe != nil {
		list = slices.Insert(list, 0, probe)
	}
	return list
}

// turns sorts list for Tier.order.
func (s *segments) turns(list []*volume, growth func(v *volume, files int64) int64) {
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
