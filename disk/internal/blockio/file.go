package blockio

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/internal/arena"
)

// File is one open segment. Offsets, lengths and memory are multiples of
// arena.AlignBytes. It is an interface so that tests can put a failing device under
// the tier.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Sync() error // data, and the metadata that finding it needs
}

// ProbeName is the name of a file that is written and read to learn what a device can.
const ProbeName = "probe"

// Folder opens and makes segment files.
type Folder interface {
	// Create makes a file of size bytes with all blocks allocated. It
	// leaves nothing behind when it fails.
	Create(name string, size int64) (File, error)
	// Open opens an existing file.
	Open(name string) (File, error)
	// Direct reports whether I/O goes past the page cache.
	Direct() bool
}

// OSFolder is a directory of the operating system. IsDirect says that its files go
// past the page cache.
type OSFolder struct {
	*folders.Folder
	IsDirect bool
}

// NewFolder finds out whether dir takes direct I/O by doing some: file systems
// refuse it at open, or at the first transfer, or not at all.
func NewFolder(dir *folders.Folder, buffered bool) (OSFolder, error) {
	own := OSFolder{Folder: dir}
	if buffered {
		return own, nil
	}
	_ = dir.Remove(ProbeName)
	defer func() { _ = dir.Remove(ProbeName) }()
	f, err := dir.Open(ProbeName, os.O_RDWR|os.O_CREATE|os.O_EXCL|direct)
	if err != nil {
		return own, nil //nolint:nilerr // refused: buffered
	}
	defer f.Close() //nolint:errcheck // it is removed
	page := AlignedBytes(arena.AlignBytes)
	if _, err := f.WriteAt(page, 0); err != nil {
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			return own, nil // how a file system says no to direct I/O
		}
		return own, fmt.Errorf("disk: write to %s: %w", dir.Path(ProbeName), err)
	}
	_, err = f.ReadAt(page, 0)
	own.IsDirect = err == nil
	return own, nil
}

// AlignedBytes is memory that direct I/O takes.
func AlignedBytes(n int) []byte {
	b := make([]byte, n+arena.AlignBytes)
	skip := int(-uintptr(unsafe.Pointer(&b[0])) & (arena.AlignBytes - 1))
	return b[skip : skip+n]
}

// Direct implements Folder.
func (d OSFolder) Direct() bool { return d.IsDirect }

// Create implements Folder.
func (d OSFolder) Create(name string, size int64) (File, error) {
	f, err := d.Folder.Open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|d.flags())
	if err != nil {
		return nil, err
	}
	if err := preallocate(f, size); err != nil {
		_ = f.Close()
		_ = d.Remove(name)
		return nil, &os.PathError{Op: "preallocate", Path: d.Path(name), Err: err}
	}
	return d.wrap(f), nil
}

// Open implements Folder.
func (d OSFolder) Open(name string) (File, error) {
	f, err := d.Folder.Open(name, os.O_RDWR|d.flags())
	if err != nil {
		return nil, err
	}
	return d.wrap(f), nil
}

func (d OSFolder) flags() int {
	if d.IsDirect {
		return direct
	}
	return 0
}

func (d OSFolder) wrap(f *os.File) File {
	if d.IsDirect {
		return directFile{f}
	}
	return bufferedFile{f}
}

// directFile's bytes do not pass the page cache.
type directFile struct{ *os.File }

func (f directFile) Sync() error { return dataSync(f.File) }

// bufferedFile asks the kernel not to keep the pages of a transfer: the tier
// above is the cache, and the page cache would hold every payload twice.
type bufferedFile struct{ *os.File }

func (f bufferedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	dropCache(f.File, off, int64(n))
	return n, err
}

func (f bufferedFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	dropCache(f.File, off, int64(n)) // starts the writing; drops the clean pages
	return n, err
}

func (f bufferedFile) Sync() error { return dataSync(f.File) }

const direct = unix.O_DIRECT // has no page cache under a file

// preallocate gives f its blocks now, so that a write into it cannot run out
// of space later.
func preallocate(f *os.File, size int64) error {
	err := control(f, func(fd int) error {
		for {
			if err := unix.Fallocate(fd, 0, 0, size); err != unix.EINTR {
				return err
			}
		}
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return f.Truncate(size) // no such promise here; writes may fail with ENOSPC
	}
	return err
}

// WriteVAt implements vectored. After an error any part of ps, or none, may be
// written; n does not tell.
func (f directFile) WriteVAt(ps [][]byte, off int64) (n int, err error) {
	err = control(f.File, func(fd int) (err error) {
		for {
			if n, err = unix.Pwritev(fd, ps, off); err != unix.EINTR {
				return err
			}
		}
	})
	return n, err
}

func dropCache(f *os.File, off, n int64) {
	_ = control(f, func(fd int) error { return unix.Fadvise(fd, off, n, unix.FADV_DONTNEED) })
}

func dataSync(f *os.File) error {
	return control(f, unix.Fdatasync)
}

// control runs fn with f's descriptor. f.Fd would take it out of the runtime's hands.
func control(f *os.File, fn func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var fnErr error
	if err := c.Control(func(fd uintptr) { fnErr = fn(int(fd)) }); err != nil {
		return err
	}
	return fnErr
}
