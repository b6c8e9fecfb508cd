package arena_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/arena"
)

// attack tries everything a client could do to a staged arena of size bytes
// and reports the attempts that were not refused.
func attack(fd, size int, foreign bool) error {
	errs := []error{attackDescriptor("passed", fd, size)}
	ro, err := unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("read-only mapping: %w", err)
	}
	before := bytes.Clone(ro)
	refused := func(what string, err error) {
		if err == nil {
			errs = append(errs, errors.New(what+" was not refused"))
		}
	}
	refused("mprotect", unix.Mprotect(ro, unix.PROT_READ|unix.PROT_WRITE))
	refused("MADV_REMOVE", unix.Madvise(ro[:arena.AlignBytes], unix.MADV_REMOVE))
	refused("write through /proc/self/mem", writeOwnMemory(ro))

	// A second life through /proc: only the owner and root get a descriptor,
	// and that is worth nothing.
	name := fmt.Sprintf("/proc/self/fd/%d", fd)
	if !foreign {
		errs = append(errs, os.Chmod(name, 0o666))
	}
	again, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case err == nil && foreign:
		errs = append(errs, errors.New("another user reopened it for writing"))
	case err == nil:
		errs = append(errs, attackDescriptor("reopened", again, size))
	case !foreign:
		errs = append(errs, fmt.Errorf("reopen, to attack further: %w", err))
	}

	// A private mapping may be written: it is the client's own copy.
	private, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err == nil {
		clear(private)
	}
	if !bytes.Equal(before, ro) {
		errs = append(errs, errors.New("bytes changed"))
	}
	return errors.Join(errs...)
}

// attackDescriptor tries what needs no mapping, or makes a writable one.
func attackDescriptor(kind string, fd, size int) error {
	garbage := []byte("garbage")
	_, write := unix.Write(fd, garbage)
	_, pwrite := unix.Pwrite(fd, garbage, 0)
	_, mmap := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	_, seals := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	const punch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	var errs []error
	for what, err := range map[string]error{
		"write":             write,
		"pwrite":            pwrite,
		"writable mmap":     mmap,
		"another seal":      seals,
		"ftruncate to 0":    unix.Ftruncate(fd, 0),
		"ftruncate to more": unix.Ftruncate(fd, int64(size)*2),
		"punch hole":        unix.Fallocate(fd, punch, 0, int64(size)),
		"zero range":        unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE, 0, int64(size)),
		"grow":              unix.Fallocate(fd, 0, int64(size), int64(size)),
	} {
		if err == nil {
			errs = append(errs, fmt.Errorf("%s on the %s descriptor was not refused", what, kind))
		}
	}
	return errors.Join(errs...)
}

// writeOwnMemory writes where mprotect is not asked, as a debugger would.
func writeOwnMemory(p []byte) error {
	f, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt([]byte("garbage"), int64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))))
	return err
}

func TestStagedArenaWithstandsClients(t *testing.T) {
	for _, nobody := range []bool{false, true} {
		t.Run(fmt.Sprintf("foreign user %t", nobody), func(t *testing.T) {
			if nobody && os.Getuid() != 0 {
				t.Skip("only root can start a client of another user")
			}
			const size = 1 << 20
			a := newTest(t, arena.Options{CapacityBytes: size})
			b := mustAlloc(t, a, size)
			want := pattern(size, 9)
			b.SealSum(b.Write(want))

			startClient(t, order{Play: "attack", Size: size, Nobody: nobody}, a.File()).wait()
			if !b.Verify() || !bytes.Equal(b.Bytes(), want) {
				t.Error("a client changed the arena")
			}
			b.Release()
			// The daemon itself can still write.
			b = mustAlloc(t, a, size)
			if b.Write(pattern(size, 10)) != arena.Checksum(b.Bytes()) {
				t.Error("the daemon lost its mapping")
			}
			b.Release()
		})
	}
}

// Another user who has the descriptor for clients can neither write an arena that may be
// kept nor open it again, though it lacks F_SEAL_FUTURE_WRITE.
func TestKeptArenaWithstandsOthers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start a client of another user")
	}
	const size = 1 << 20
	a := newTest(t, arena.Options{CapacityBytes: size, Keep: true})
	b := mustAlloc(t, a, size)
	b.SealSum(b.Write(pattern(size, 9)))
	startClient(t, order{Play: "attack", Size: size, Nobody: true}, a.File()).wait()
	if !b.Verify() {
		t.Error("a client changed the arena")
	}
	b.Release()
	f, err := a.Files()
	if err != nil {
		t.Fatal(err)
	}
	st, err := f.Whole.Stat()
	if err != nil || st.Mode().Perm() != 0o400 {
		t.Errorf("the file has mode %v, %v: its owner could open it to write", st.Mode(), err)
	}
}

// A user who may not lock so much memory is told what to raise.
func TestMlockLimit(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start a client of another user")
	}
	startClient(t, order{Play: "mlock", Nobody: true}, nil).wait()
}

// mlockTooMuch asks for more than an ordinary user may lock.
func mlockTooMuch() error {
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 1 << 16, Max: 1 << 16}); err != nil {
		return err
	}
	a, err := arena.New(arena.Options{CapacityBytes: 1 << 20, Mlock: true})
	if err == nil {
		return errors.Join(errors.New("mlock above the limit succeeded"), a.Close())
	}
	for _, want := range []string{"RLIMIT_MEMLOCK is 65536", "cpu.mlock"} {
		if !strings.Contains(err.Error(), want) {
			return fmt.Errorf("%w: does not say %q", err, want)
		}
	}
	return nil
}

func newTest(t *testing.T, o arena.Options) *arena.Arena {
	t.Helper()
	a, err := arena.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func mustAlloc(t *testing.T, a *arena.Arena, n int) arena.Block {
	t.Helper()
	b, err := a.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// pattern is n bytes that depend on a seed.
func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*i) + seed
	}
	return p
}
