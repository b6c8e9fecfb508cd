package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// lookEvery is how often the file system and Badger's files are measured.
const lookEvery = time.Second

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
func (t *instance) lookAtMeta() error {
	free, err := t.o.free(t.o.Meta)
	if err != nil {
		return err
	}
	t.budget.free.Store(free)
	files, _ := folders.OccupiedBelow(t.db.Dir)
	t.budget.files.Store(files)
	others := int64(smallFileBytes)
	if !slices.ContainsFunc(t.volumes, func(v *volume) bool { return folders.SameDir(v.dir, t.o.Meta) }) {
		others += otherBytes(t.o.Meta)
	}
	for _, v := range t.volumes {
		others += v.others.Load()
	}
	t.budget.others.Store(others)
	if err := t.budget.look(t.db.Measure); err != nil && !errors.Is(err, metadata.ErrBroken) {
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
func (t *instance) lookAtFolders() error {
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
func (t *instance) lookAll() error {
	for _, f := range t.volumes.fileSystems() {
		if err := f.look(); err != nil {
			return err
		}
	}
	for _, v := range t.volumes {
		t.segments.lookAtOthers(v)
	}
	return t.lookAtMeta()
}

// maintain does the work of the maintenance every lookEvery, until ctx ends. It
// fails where a folder is not the one any more that was opened.
func (t *instance) maintain(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for base.Await(ctx, tick.C) {
		err := t.call(ctx, t.metaDev, func() error { return errors.Join(t.lookAtFolders(), t.lookAtMeta()) }, nil)
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
			t.headroom.watch(f)
		}
		if err != nil && ctx.Err() == nil {
			t.trouble.Warn().Err(err).Msg("maintenance failed")
		}
		t.saveUses()
	}
	return nil
}

const (
	// maxUses uses a second are written down; more are let go. A key that is used
	// often will be noted at a later use.
	maxUses = 4096
	// useGranularity is how old a record's time of last use must be, in seconds,
	// to be worth a write.
	useGranularity = 60
)

// uses collects keys whose last use is to be written down, so that recency
// survives a restart roughly.
type uses struct {
	sync.Mutex
	keys []key.Key
}

// add keeps the first keys of ks, as many as there is room for.
func (u *uses) add(ks []key.Key) {
	u.Lock()
	defer u.Unlock()
	n := min(len(ks), maxUses-len(u.keys))
	u.keys = append(u.keys, ks[:n]...)
}

func (u *uses) take() []key.Key {
	u.Lock()
	defer u.Unlock()
	ks := u.keys
	u.keys = nil
	return ks
}

// saveUses queues the collected uses.
func (t *instance) saveUses() {
	if ks := t.uses.take(); len(ks) > 0 {
		_ = t.commits.Add(&useNotes{t: t, keys: ks}) // closed: the order suffers, no more
	}
}

// useNotes rewrites the records of keys with the present time.
type useNotes struct {
	t    *instance
	keys []key.Key
}

// Apply asks the ledger about each key: a deletion that is queued before this
// has taken the key out of it already, and must not be undone.
func (u *useNotes) Apply(b *metadata.Batch) error {
	at := now()
	for ks := range slices.Chunk(u.keys, usesAtOnce) {
		err := u.t.db.Entries(ks, func(i int, e *database.Entry) { u.rewrite(b, ks[i], e, at) })
		if err != nil {
			return err
		}
	}
	return nil
}

// usesAtOnce is how many records are asked for at once.
const usesAtOnce = 512

func (u *useNotes) rewrite(b *metadata.Batch, k key.Key, e *database.Entry, at uint32) {
	known, state := u.t.ledger.Find(k)
	if state != ledger.Resident || at-e.Used < useGranularity || known.Value != valueOf(e) {
		return
	}
	e.Used = at
	e.Hits++
	b.Rewrite(e)
}

func (u *useNotes) Committed(error) {}

// now is the time as records keep it.
func now() uint32 { return uint32(time.Now().Unix()) }
