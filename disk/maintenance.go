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

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
)

// lookEvery is how often the file system and Badger's files are measured.
const lookEvery = time.Second

// maintenance looks from time to time at the folders and the free space, which
// other processes change, and does the work that no call waits for.
type maintenance struct{ t *instance }

// look measures what others change: the free space of a file system.
func (f *fileSystem) look() error {
	free, err := f.free(f.dir)
	if err == nil {
		f.available.Store(free)
	}
	return err
}

// lookAtMeta measures the database: the free space of its file system, the bytes
// of its files, and the bytes that it holds. A broken one keeps the last number
// of these.
func (m maintenance) lookAtMeta() error {
	t := m.t
	free, err := t.o.free(t.o.Meta)
	if err != nil {
		return err
	}
	t.share.free.Store(free)
	files, _ := folders.OccupiedBelow(t.db.Dir)
	t.share.files.Store(files)
	others := int64(smallFileBytes)
	if !slices.ContainsFunc(t.volumes, func(v *volume) bool { return folders.SameDir(v.dir, t.o.Meta) }) {
		others += otherBytes(t.o.Meta)
	}
	for _, v := range t.volumes {
		others += v.others.Load()
	}
	t.share.others.Store(others)
	if err := t.share.look(t.db.Measure); err != nil && !errors.Is(err, metadata.ErrBroken) {
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
func (m maintenance) lookAtFolders() error {
	t := m.t
	for i, lock := range t.set.Locks {
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
func (m maintenance) lookAll() error {
	t := m.t
	for _, f := range t.volumes.fileSystems() {
		if err := f.look(); err != nil {
			return err
		}
	}
	for _, v := range t.volumes {
		t.segments.lookAtOthers(v)
	}
	return m.lookAtMeta()
}

// maintain does the work of the maintenance every lookEvery, until ctx ends. It
// fails where a folder is not the one any more that was opened.
func (m maintenance) maintain(ctx context.Context) error {
	t := m.t
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := t.call(ctx, t.metaDev, func() error { return errors.Join(m.lookAtFolders(), m.lookAtMeta()) }, nil)
		if errors.Is(err, errGone) {
			return err
		}
		for _, v := range t.volumes {
			err = errors.Join(err, t.call(ctx, v.dev, func() error {
				t.segments.lookAtOthers(v)
				return errors.Join(t.segments.removeIdle(v), v.fs.look())
			}, nil))
		}
		for _, f := range t.volumes.fileSystems() {
			t.space.watch(f)
		}
		if err != nil && ctx.Err() == nil {
			t.trouble.Warn().Err(err).Msg("maintenance failed")
		}
		m.saveUses()
	}
}
