package arena

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func newMemory(t *testing.T, n int64) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("pages", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "pages")
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(n); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestMap(t *testing.T) {
	for _, n := range []int64{1, 4096, 4097, HugeBytes - 1, HugeBytes, 3*HugeBytes + 5} {
		f := newMemory(t, n)
		w, err := MapHuge(f, n, true)
		if err != nil {
			t.Fatal(err)
		}
		r, err := MapHuge(f, n, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range [][]byte{w, r} {
			if at := uintptr(unsafe.Pointer(&p[0])); at%HugeBytes != 0 || int64(len(p)) != n {
				t.Errorf("%d bytes of %d at %#x", len(p), n, at)
			}
		}
		if w[n-1] = 7; r[n-1] != 7 {
			t.Errorf("%d bytes: what one mapping writes the other does not read", n)
		}
		for _, p := range [][]byte{w, r} {
			if err := Unmap(p); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestMapRefuses(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	for name, file := range map[string]struct {
		f *os.File
		n int64
	}{
		"no memory":       {read, 4096},
		"nothing":         {newMemory(t, 4096), 0},
		"too much for it": {newMemory(t, 4096), 1 << 62},
	} {
		if p, err := MapHuge(file.f, file.n, false); err == nil {
			t.Errorf("%s: mapped %d bytes", name, len(p))
		}
	}
}
