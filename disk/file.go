package disk

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unsafe"
)

// file is one open segment. Offsets, lengths and memory are multiples of
// alignBytes. It is an interface so that tests can put a failing device under
// the tier.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Sync() error // data, and what is needed to find it
}

// folder opens and makes segment files.
type folder interface {
	// create makes a file of size bytes with all blocks allocated. It
	// leaves nothing behind when it fails.
	create(path string, size int64) (file, error)
	// open opens an existing file.
	open(path string) (file, error)
	// direct reports whether I/O goes past the page cache.
	direct() bool
}

// osFolder is a directory of the operating system.
type osFolder struct{ isDirect bool }

// newFolder finds out whether dir takes direct I/O by doing some: file systems
// refuse it at open, or at the first transfer, or not at all.
func newFolder(dir string, buffered bool) (osFolder, error) {
	if buffered || !directSupported {
		return osFolder{}, nil
	}
	path := filepath.Join(dir, "probe")
	_ = os.Remove(path)
	f, err := openDirect(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		_ = os.Remove(path)
		return osFolder{}, nil // refused: buffered
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(path)
	}()
	page := alignedBytes(alignBytes)
	if _, err := f.WriteAt(page, 0); err != nil {
		if isRefusal(err) {
			return osFolder{}, nil
		}
		return osFolder{}, fmt.Errorf("disk: write to %s: %w", path, err)
	}
	_, err = f.ReadAt(page, 0)
	return osFolder{isDirect: err == nil}, nil
}

// alignedBytes is memory that direct I/O takes.
func alignedBytes(n int) []byte {
	b := make([]byte, n+alignBytes)
	skip := int(-uintptr(unsafe.Pointer(&b[0])) & (alignBytes - 1))
	return b[skip : skip+n]
}

func (d osFolder) direct() bool { return d.isDirect }

func (d osFolder) create(path string, size int64) (file, error) {
	f, err := d.openFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	if err := preallocate(f, size); err != nil {
		_ = f.Close()
		_ = os.Remove(path)
		return nil, &os.PathError{Op: "preallocate", Path: path, Err: err}
	}
	return d.wrap(f), nil
}

func (d osFolder) open(path string) (file, error) {
	f, err := d.openFile(path, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	return d.wrap(f), nil
}

func (d osFolder) openFile(path string, flags int) (*os.File, error) {
	if d.isDirect {
		return openDirect(path, flags)
	}
	return os.OpenFile(path, flags, 0o600)
}

func (d osFolder) wrap(f *os.File) file {
	if d.isDirect {
		return directFile{f}
	}
	return bufferedFile{f}
}

// directFile's bytes do not pass the page cache.
type directFile struct{ *os.File }

func (f directFile) Sync() error { return dataSync(f.File) }

// bufferedFile asks the kernel not to keep what was transferred: the tier
// above is the cache, and the page cache would hold every payload twice.
type bufferedFile struct{ *os.File }

func (f bufferedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	dropCache(f.File, off, int64(n))
	return n, err
}

func (f bufferedFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	dropCache(f.File, off, int64(n)) // starts the writing; drops what is clean
	return n, err
}

func (f bufferedFile) Sync() error { return dataSync(f.File) }
