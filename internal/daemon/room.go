package daemon

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/human"
)

// fileSystem is one that folders of the disk tier lie on, or will once they
// are made.
type fileSystem struct {
	path       string // the first of those folders
	free, held int64  // held by the tier's own files
	data, meta bool   // what lies there: segments, the database
}

// room is what the tier may occupy there.
func (f *fileSystem) room(c *config.Disk) int64 {
	return max(0, f.free-int64(c.MinFree)) + f.held
}

// diskWarnings says what the file systems do not allow of the disk tier. What
// this user cannot see the daemon may.
func diskWarnings(c *config.Disk) []string {
	if !c.Enabled() {
		return nil
	}
	out := disk.Warnings(diskOptions(c, zerolog.Nop()))
	systems, err := fileSystems(c)
	if err != nil {
		return out
	}
	return append(out, roomWarnings(systems, c)...)
}

func roomWarnings(systems []fileSystem, c *config.Disk) (out []string) {
	reserve := disk.DefaultMetaReserve(int64(c.Capacity))
	segment := min(disk.DefaultSegment(int64(c.Capacity)), int64(c.Capacity)-reserve)
	all := int64(0)
	for _, f := range systems {
		need, what, room := segment, "a segment", f.room(c)
		switch {
		case f.data && f.meta:
			need, what = segment+reserve, "a segment and the database"
			all += room
		case f.meta:
			need, what = reserve, "the database"
			all += min(room, reserve)
		default:
			all += room
		}
		if room < need {
			out = append(out, fmt.Sprintf("disk tier: the file system of %s has %s free, less disk.min_free (%s), and %s of the tier: too little for %s (%s)",
				f.path, human.Bytes(f.free), human.Bytes(int64(c.MinFree)), human.Bytes(f.held), what, human.Bytes(need)))
		}
	}
	if int64(c.Capacity) > all {
		out = append(out, fmt.Sprintf("disk tier: disk.capacity is %s, but what is free, less disk.min_free (%s), and what the tier holds come to %s: that will bound it",
			human.Bytes(int64(c.Capacity)), human.Bytes(int64(c.MinFree)), human.Bytes(all)))
	}
	return out
}

// fileSystems are those of the tier's folders, each once.
func fileSystems(c *config.Disk) (out []fileSystem, err error) {
	meta := c.MetaPath()
	folders := c.Paths
	if !slices.Contains(folders, meta) {
		folders = append(slices.Clone(folders), meta)
	}
	for k, path := range folders {
		i := slices.IndexFunc(out, func(f fileSystem) bool { return disk.SameFileSystem(f.path, path) })
		if i < 0 {
			free, err := disk.FreeBytes(path)
			if err != nil {
				return nil, err
			}
			i, out = len(out), append(out, fileSystem{path: path, free: free})
		}
		f := &out[i]
		if !slices.ContainsFunc(folders[:k], func(other string) bool { return below(path, other) }) {
			held, err := disk.OccupiedBytes(path)
			if err != nil {
				return nil, err
			}
			f.held += held
		}
		f.data = f.data || slices.Contains(c.Paths, path)
		f.meta = f.meta || path == meta
	}
	return out, nil
}

// below tells whether path lies in a folder.
func below(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}
