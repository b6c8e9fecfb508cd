package disk

import (
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/kvstored/kvstored/disk/internal/blockio"
)

// small is a folder whose file system has no more than some bytes, as far as a tier is
// told of it.
type small struct {
	blockio.Folder
	dir    string
	bytes  int64
	others atomic.Int64 // that other folders take
}

// newSmall has the tier of o, which has one path, see a small file system.
func newSmall(t testing.TB, o *Options, bytes int64) *small {
	t.Helper()
	own, err := blockio.NewFolder(folderAt(t, o.Paths[0]), o.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	f := &small{Folder: own, dir: o.Paths[0], bytes: bytes}
	o.free = func(string) (int64, error) { return f.free(), nil }
	return f
}

func (f *small) free() int64 { return max(0, f.bytes-f.others.Load()-occupied(f.dir)) }

func (f *small) Create(path string, size int64) (blockio.File, error) {
	if size > f.free() {
		return nil, &os.PathError{Op: "preallocate", Path: path, Err: syscall.ENOSPC}
	}
	return f.Folder.Create(path, size)
}
