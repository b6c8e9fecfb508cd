package arena

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// copyOf is another descriptor of a file, as a successor gets it.
func copyOf(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

func filesOf(t *testing.T, a *Arena) Files {
	t.Helper()
	f, err := a.Files()
	if err != nil {
		t.Fatal(err)
	}
	return Files{Whole: copyOf(t, f.Whole), Clients: copyOf(t, f.Clients)}
}

// A successor finds each block where it was, and a predecessor that goes on too.
func TestAdopt(t *testing.T) {
	for _, direct := range []bool{false, true} {
		t.Run(fmt.Sprintf("direct %t", direct), func(t *testing.T) {
			o := Options{CapacityBytes: 1 << 20, HandOver: true, Direct: direct}
			a := newTest(t, o)
			type place struct {
				off, n int64
				sum    uint64
			}
			var left []place
			for i := range 10 {
				b := mustAlloc(t, a, 5000+i)
				defer b.Release()
				b.SealSum(b.Write(pattern(5000+i, byte(i))))
				left = append(left, place{b.Offset(), int64(b.Len()), b.Sum()})
			}
			hung := mustAlloc(t, a, 100)
			defer hung.Release()
			var voids []place
			a.Others(func(id uint32) bool { return id != hung.ID() }, func(off, n int64) { voids = append(voids, place{off: off, n: n}) })
			if len(voids) != 1 || voids[0].off != hung.Offset() {
				t.Fatalf("what is no entry's: %v", voids)
			}
			adopted, err := Adopt(filesOf(t, a), o)
			if err != nil {
				t.Fatal(err)
			}
			for what, next := range map[string]*Arena{"successor": adopted, "the same": a.Renew()} {
				_, once := next.Exclude(voids[0].off, voids[0].n)
				if _, twice := next.Exclude(voids[0].off, voids[0].n); !once || twice {
					t.Errorf("%s: a void is not kept out of use once", what)
				}
				var blocks []Block
				for i, l := range left {
					b, ok := next.Place(l.off, int(l.n), l.sum, false)
					if !ok || !b.Verify() || !bytes.Equal(b.Bytes(), pattern(int(l.n), byte(i))) {
						t.Fatalf("%s: block %d is not there", what, i)
					}
					blocks = append(blocks, b)
				}
				for why, bad := range map[string]place{
					"in use": left[0], "a void": voids[0], "not aligned": {off: 1, n: 1}, "outside": {off: 1 << 20, n: 1},
					"too long": {off: 1<<20 - AlignBytes, n: AlignBytes + 1}, "negative": {off: -AlignBytes, n: 1}, "nothing": {off: 1 << 19},
					"too large": {off: 0, n: MaxPayload + 1},
				} {
					if _, ok := next.Place(bad.off, int(bad.n), 0, true); ok {
						t.Errorf("%s: a block that is %s", what, why)
					}
				}
				mustAlloc(t, next, 1000).Release()
				for _, b := range blocks {
					b.Release()
				}
				if what == "successor" {
					if err := next.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// Files that are no such arena's are refused.
func TestAdoptRefuses(t *testing.T) {
	o := Options{CapacityBytes: 1 << 20, HandOver: true}
	other := newTest(t, o)
	plain := newTest(t, Options{CapacityBytes: 1 << 20})
	if _, err := plain.Files(); err == nil {
		t.Error("an arena that is not to be handed over gives its files")
	}
	for want, f := range map[string]func(t *testing.T, f *Files, o *Options){
		"bytes, not the":    func(_ *testing.T, _ *Files, o *Options) { o.CapacityBytes *= 2 },
		"of another file":   func(t *testing.T, f *Files, _ *Options) { f.Clients = copyOf(t, other.File()) },
		"what arena.puts":   func(_ *testing.T, _ *Files, o *Options) { o.Direct = true },
		"is missing":        func(_ *testing.T, f *Files, _ *Options) { f.Clients = nil },
		"cannot be written": func(t *testing.T, f *Files, _ *Options) { f.Whole = copyOf(t, plain.File()) },
		"no memory file": func(t *testing.T, f *Files, _ *Options) {
			var err error
			if f.Whole, err = os.Create(t.TempDir() + "/file"); err != nil {
				t.Fatal(err)
			}
		},
		"could change": func(t *testing.T, f *Files, _ *Options) {
			var err error
			if f.Whole, err = NewMemory("mine", 1<<20); err != nil { // without F_SEAL_SEAL
				t.Fatal(err)
			}
		},
	} {
		t.Run(want, func(t *testing.T) {
			a := newTest(t, Options{CapacityBytes: 1 << 20, HandOver: true})
			files, o := filesOf(t, a), o
			f(t, &files, &o)
			if _, err := Adopt(files, o); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Adopt: %v", err)
			}
		})
	}
}
