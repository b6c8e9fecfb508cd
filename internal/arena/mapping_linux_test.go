package arena

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func addr(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }

// residentBytes counts the pages of p in memory.
func residentBytes(t *testing.T, p []byte) int {
	t.Helper()
	vec := make([]byte, (len(p)+AlignBytes-1)/AlignBytes)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, addr(p), uintptr(len(p)), addr(vec)); errno != 0 {
		t.Fatal(errno)
	}
	return bytes.Count(vec, []byte{1}) * AlignBytes
}

func TestPopulateFaultsEverythingIn(t *testing.T) {
	// More than one slice, and an end within a huge page.
	const size = sliceBytes + 5*HugeBytes + 3*AlignBytes
	for _, huge := range []string{HugeOff, HugeAuto} {
		a := newTest(t, Options{CapacityBytes: size, Touch: Touch, HugePages: huge})
		if addr(a.mapping.mem)%HugeBytes != 0 {
			t.Errorf("mapped at %#x, where no huge page fits", addr(a.mapping.mem))
		}
		if got := residentBytes(t, a.mapping.mem); got < sliceBytes || got == size {
			t.Errorf("hugepages %s: %d of %d bytes are resident when New returns", huge, got, size)
		}
		if err := errors.Join(a.Populate(t.Context()), a.CountHuge()); err != nil {
			t.Fatal(err)
		}
		if got := residentBytes(t, a.mapping.mem); got != size {
			t.Errorf("hugepages %s: %d of %d bytes are resident", huge, got, size)
		}
		got := a.Stats().HugeBytes
		if got < 0 || got > size || got%HugeBytes != 0 || huge == HugeOff && got != 0 {
			t.Errorf("hugepages %s: %d huge bytes of %d", huge, got, size)
		}
		t.Logf("hugepages %s: %d MiB of %d", huge, got>>20, size>>20)
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	a := newTest(t, Options{CapacityBytes: size})
	if got := residentBytes(t, a.mapping.mem); got != 0 {
		t.Errorf("untouched: %d bytes are resident", got)
	}
}

func TestHugePagesOn(t *testing.T) {
	a, err := New(Options{CapacityBytes: 4 * HugeBytes, Touch: Touch, HugePages: HugeOn})
	if err != nil {
		if !strings.Contains(err.Error(), "cpu.hugepages") {
			t.Errorf("the error does not say what to do: %v", err)
		}
		return
	}
	if a.Stats().HugeBytes == 0 {
		t.Error("no huge pages, and no error")
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// All is locked, also pages that are populated later; New says so where the limit is below that.
func TestMlock(t *testing.T) {
	for _, o := range []Options{{CapacityBytes: 1 << 20}, {CapacityBytes: sliceBytes + 1<<20, HugePages: HugeOff, Touch: Touch}} {
		o.Mlock = true
		a, err := New(o)
		if err != nil {
			if !strings.Contains(err.Error(), "mlock") {
				t.Error(err)
			}
			t.Skip("not allowed here:", err)
		}
		if err := a.Populate(t.Context()); err != nil {
			t.Error(err)
		}
		if !a.Stats().Locked || residentBytes(t, a.mapping.mem) != int(o.CapacityBytes) {
			t.Error("not locked")
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The disk tier reads into the sealed arena and writes from it, past the page
// cache.
func TestDirectIO(t *testing.T) {
	for _, huge := range []string{HugeOff, HugeAuto} {
		t.Run("hugepages "+huge, func(t *testing.T) {
			a := newTest(t, Options{CapacityBytes: 8 << 20, Touch: Touch, HugePages: huge})
			fd, err := unix.Open(filepath.Join(t.TempDir(), "extents"), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_DIRECT, 0o600)
			if errors.Is(err, unix.EINVAL) {
				t.Skip("the file system of the temporary folder has no direct I/O")
			}
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			out, in := mustAlloc(t, a, 1<<20+77), mustAlloc(t, a, 1<<20+77)
			sum := out.Write(pattern(out.Len(), 5))
			if n, err := unix.Pwrite(fd, out.Padded(), 0); err != nil || n != len(out.Padded()) {
				t.Fatalf("direct write of %d bytes: %d, %v", len(out.Padded()), n, err)
			}
			if n, err := unix.Pread(fd, in.Padded(), 0); err != nil || n != len(in.Padded()) {
				t.Fatalf("direct read of %d bytes: %d, %v", len(in.Padded()), n, err)
			}
			if in.Seal() != sum || !bytes.Equal(in.Padded(), out.Padded()) {
				t.Error("other bytes came back")
			}
			out.Release()
			in.Release()
		})
	}
}
