package arena

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// mapped is the descriptor mapped to be written, as a client has it.
func mapped(t *testing.T, f *os.File, size int) []byte {
	t.Helper()
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	if unix.Ftruncate(int(f.Fd()), 0) == nil || unix.Ftruncate(int(f.Fd()), int64(size)*2) == nil {
		t.Error("ftruncate was not refused")
	}
	return mem
}

// refill fills the shared bytes with a value.
func refill(mem []byte, v byte) {
	for i := range mem {
		mem[i] = v
	}
}

// punch takes the pages of a file away.
func punch(t *testing.T, f *os.File, size int64) {
	t.Helper()
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, size); err != nil {
		t.Fatal(err)
	}
}

func TestFileModeAndSeals(t *testing.T) {
	const common = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	w, err := NewWindow(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for name, c := range map[string]struct {
		file  *os.File
		seals int
		flags int
	}{
		"staged": {newTest(t, Options{CapacityBytes: 1 << 20}).File(), common | unix.F_SEAL_FUTURE_WRITE, unix.O_RDONLY},
		"window": {w.File(), common, unix.O_RDWR},
	} {
		info, err := c.file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != 0o600 || info.Size() != 1<<20 {
			t.Errorf("%s: mode %v, size %d", name, info.Mode(), info.Size())
		}
		seals, err := unix.FcntlInt(c.file.Fd(), unix.F_GET_SEALS, 0)
		if err != nil || seals&^unix.F_SEAL_EXEC != c.seals {
			t.Errorf("%s: seals %#x (%v), want %#x", name, seals, err, c.seals)
		}
		flags, err := unix.FcntlInt(c.file.Fd(), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_ACCMODE != c.flags {
			t.Errorf("%s: flags %#x (%v)", name, flags, err)
		}
	}
}

func TestWindow(t *testing.T) {
	const size = 1 << 20
	w, err := NewWindow(size)
	if err != nil {
		t.Fatal(err)
	}
	a := newTest(t, Options{CapacityBytes: size})
	b := mustAlloc(t, a, size)
	client := mapped(t, w.File(), size)
	refill(client, 1)
	sum, err := b.WriteFrom(w, 0, Look{})
	if err != nil {
		t.Fatal(err)
	}
	b.SealSum(sum)
	if want := bytes.Repeat([]byte{1}, size); !bytes.Equal(b.Bytes(), want) {
		t.Error("the client's bytes did not arrive")
	}
	refill(client, 2)
	punch(t, w.File(), size)
	hole := bytes.Repeat([]byte{1}, size)
	if _, err := w.read(hole, 0, Look{}); err != nil || !bytes.Equal(hole, make([]byte, size)) {
		t.Errorf("the hole does not read as zeros (%v)", err)
	}
	if n := takenBytes(t, w.File()); n != 0 {
		t.Errorf("reading a hole took %d bytes of memory", n)
	}
	if !b.Verify() {
		t.Error("the client changed a block after commit")
	}
	b.Release()
	for range 2 {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

// takenBytes is the memory that a file of memory has.
func takenBytes(t *testing.T, f *os.File) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// A window that its client has filled here and there takes no more memory when
// it is read, and none when it is closed while the client has it mapped.
func TestWindowTakesNoPages(t *testing.T) {
	const size = 3 * pieceBytes
	w, err := NewWindow(size)
	if err != nil {
		t.Fatal(err)
	}
	client, err := unix.Mmap(int(w.File().Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(client) //nolint:errcheck // a test's
	want := make([]byte, size)
	for off := 0; off < size; off += 5 * pageBytes { // the whole first piece, then every fifth page
		n := 1
		if off < pieceBytes {
			n = 5 * pageBytes
		}
		copy(client[off:], pattern(n, byte(off/pageBytes)))
		copy(want[off:], pattern(n, byte(off/pageBytes)))
	}
	before := takenBytes(t, w.File())
	for range 2 {
		got := pattern(size, 1)
		if sum, err := w.read(got, 0, Look{}); err != nil || !bytes.Equal(got, want) || sum != Checksum(want) {
			t.Fatalf("the window reads as something else (%v)", err)
		}
	}
	if after := takenBytes(t, w.File()); after != before {
		t.Errorf("the client had touched %d bytes; after they were read there were %d", before, after)
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", w.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n := takenBytes(t, f); n != 0 {
		t.Errorf("%d bytes are left of a closed window", n)
	}
}

// A window is read where it is mapped again once its holes are filled, later
// each time: holes are attempts to have the daemon take pages.
func TestWindowHolesAreForgotten(t *testing.T) {
	const size = 2 * pieceBytes
	w, err := NewWindow(size)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	client, err := unix.Mmap(int(w.File().Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(client) //nolint:errcheck // a test's
	copy(client[pieceBytes:], pattern(pieceBytes, 1))
	read := func(off int64) {
		t.Helper()
		if _, err := w.read(make([]byte, pieceBytes), off, Look{}); err != nil {
			t.Fatal(err)
		}
	}
	for wary := int32(1); wary <= 8; wary *= 2 {
		read(0)
		for i := range wary {
			if got := w.wary.Load(); got != wary-i {
				t.Fatalf("%d pieces are read through the descriptor after %d of %d", got, i, wary)
			}
			read(pieceBytes)
		}
		if w.wary.Load() != 0 || !w.mapped(w.mem[pieceBytes:]) {
			t.Errorf("%d whole pieces later the window is not read where it is mapped", wary)
		}
	}
	w.last.Store(maxWary)
	if read(0); w.wary.Load() != maxWary {
		t.Errorf("at most %d pieces: %d", maxWary, w.wary.Load())
	}
}

// A look serves for its part of the window, and finds nothing where a page is missing, or
// while holes have made the window wary.
func TestLook(t *testing.T) {
	const size, written = 2 * LookBytes, LookBytes + LookBytes/2
	w, err := NewWindow(size)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	client, err := unix.Mmap(int(w.File().Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(client) //nolint:errcheck // a test's
	want := pattern(written, 1)
	copy(client, want)
	for _, c := range []struct{ off, n int64 }{{0, LookBytes}, {LookBytes / 2, LookBytes}, {0, 1}, {written - 4096, 4096}} {
		if got := w.Look(c.off, c.n); got != (Look{c.off, c.off + c.n}) {
			t.Errorf("%d bytes at %d: %+v", c.n, c.off, got)
		}
	}
	for _, c := range []struct{ off, n int64 }{{0, LookBytes + 1}, {written, 1}, {written - 4096, 8192}} {
		if got := w.Look(c.off, c.n); got != (Look{}) {
			t.Errorf("%d bytes at %d, where some are missing or too many: %+v", c.n, c.off, got)
		}
	}
	look, got := w.Look(0, LookBytes), make([]byte, LookBytes/4)
	for off := int64(0); off < LookBytes; off += LookBytes / 4 {
		if _, err := w.read(got, off, look); err != nil || !bytes.Equal(got, want[off:][:len(got)]) {
			t.Errorf("at %d other bytes are read (%v)", off, err)
		}
	}
	w.wary.Store(1)
	if w.Look(0, 4096) != (Look{}) || w.wary.Load() != 1 {
		t.Error("a wary window is looked at")
	}
	if _, err := w.read(got, 0, look); err != nil || w.wary.Load() != 1 {
		t.Errorf("what was seen already is looked for again (%v)", err)
	}
	if _, err := w.read(got, LookBytes-4096, look); err != nil || w.wary.Load() != 0 {
		t.Errorf("what is seen in part is not looked for (%v)", err)
	}
}

// The checksum describes what lies in the block, however the source changes
// during the copy.
func TestWriteFromChangingSource(t *testing.T) {
	const size = 4 << 20
	w, err := NewWindow(size)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	a := newTest(t, Options{CapacityBytes: size})
	client := mapped(t, w.File(), size)
	var ended atomic.Bool
	var scribbling sync.WaitGroup
	defer scribbling.Wait()
	defer ended.Store(true)
	scribbling.Go(func() {
		for v := byte(0); !ended.Load(); v++ {
			for i := 0; i < len(client); i += 61 {
				client[i] = v
			}
		}
	})
	for range 20 {
		b := mustAlloc(t, a, size)
		sum, err := b.WriteFrom(w, 0, Look{})
		if err != nil {
			t.Fatal(err)
		}
		b.SealSum(sum)
		if !b.Verify() {
			t.Error("the checksum is not that of the copy")
		}
		b.Release()
	}
}

func TestWindowErrors(t *testing.T) {
	for _, n := range []int64{-1, 0, MaxWindow + 1} {
		if _, err := NewWindow(n); err == nil {
			t.Errorf("NewWindow(%d) succeeded", n)
		}
	}
}
