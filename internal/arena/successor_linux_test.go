package arena

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// copyOf is another descriptor of a file, as the next process gets it.
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

// The next process finds each block where it was, under its id, and uses the other ids.
func TestAdopt(t *testing.T) {
	o := Options{CapacityBytes: 1 << 20, Keep: true}
	a := newTest(t, o)
	type place struct {
		id     uint32
		off, n int64
		sum    uint64
	}
	var left []place
	taken := map[uint32]bool{}
	for i := range 10 {
		b := mustAlloc(t, a, 5000+i)
		defer b.Release()
		b.SealSum(b.Write(pattern(5000+i, byte(i))))
		if i%3 > 0 {
			left = append(left, place{b.ID(), b.Offset(), int64(b.Len()), b.Sum()})
			taken[b.ID()] = true
		}
	}
	const spare = 10 // the id of what has no place
	taken[spare] = true
	next, err := Adopt(filesOf(t, a), o)
	if err != nil {
		t.Fatal(err)
	}
	next.Reclaim(spare, func(id uint32) bool { return taken[id] })
	var blocks []Block
	for i, l := range left {
		b, ok := next.Place(l.id, l.off, int(l.n), l.sum)
		if !ok || b.ID() != l.id || !b.Clear() {
			t.Fatalf("block %d is not there", i)
		}
		blocks = append(blocks, b)
	}
	bad := map[string]place{
		"in use": left[0], "not aligned": {off: 1, n: 1}, "outside": {off: 1 << 20, n: 1},
		"too long": {off: 1<<20 - AlignBytes, n: AlignBytes + 1}, "negative": {off: -AlignBytes, n: 1}, "nothing": {off: 1 << 19},
		"too large": {off: 0, n: MaxPayload + 1},
	}
	for why, p := range bad {
		if _, ok := next.Place(spare, p.off, int(p.n), 0); ok {
			t.Errorf("a block that is %s", why)
		}
		next.mu.spare = next.mu.spare[:len(next.mu.spare)-1] // the same id again
	}
	for range 5 { // more than there were ids
		b := mustAlloc(t, next, 1000)
		if taken[b.ID()] && b.ID() != spare {
			t.Errorf("a new block has the id %d, which another one has", b.ID())
		}
		blocks = append(blocks, b)
	}
	for _, b := range blocks {
		b.Release()
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}

// Files that are no such arena's are refused.
func TestAdoptRefuses(t *testing.T) {
	o := Options{CapacityBytes: 1 << 20, Keep: true}
	other := newTest(t, o)
	plain := newTest(t, Options{CapacityBytes: 1 << 20})
	if _, err := plain.Files(); err == nil {
		t.Error("an arena that is not to be kept gives its files")
	}
	for want, f := range map[string]func(t *testing.T, f *Files, o *Options){
		"bytes, not the":    func(_ *testing.T, _ *Files, o *Options) { o.CapacityBytes *= 2 },
		"of another file":   func(t *testing.T, f *Files, _ *Options) { f.Clients = copyOf(t, other.File()) },
		"could write by":    func(t *testing.T, f *Files, _ *Options) { f.Clients = copyOf(t, f.Whole) },
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
			a := newTest(t, Options{CapacityBytes: 1 << 20, Keep: true})
			files, o := filesOf(t, a), o
			f(t, &files, &o)
			if _, err := Adopt(files, o); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Adopt: %v", err)
			}
		})
	}
}

// TestAdoptOfHalf: slices that an earlier process had not populated are handed out once they are there;
// the others are not touched again.
func TestAdoptOfHalf(t *testing.T) {
	o := Options{CapacityBytes: 3 * sliceBytes, Keep: true, HugePages: HugeOff, Touch: Touch}
	a := newTest(t, o)
	b := mustAlloc(t, a, 1<<20)
	defer b.Release()
	b.SealSum(b.Write(pattern(1<<20, 3)))
	if err := Touch(a.mapping.mem[sliceBytes:sliceBytes+stripeBytes], false); err != nil { // it ended amid the second slice
		t.Fatal(err)
	}
	half, err := Adopt(filesOf(t, a), o)
	if err != nil {
		t.Fatal(err)
	}
	half.Reclaim(b.ID(), func(id uint32) bool { return id == b.ID() })
	kept, ok := half.Place(b.ID(), b.Offset(), b.Len(), b.Sum())
	if !ok || half.Populated() != sliceBytes || !half.Populating() {
		t.Fatalf("%d bytes are populated", half.Populated())
	}
	if err := half.Populate(t.Context()); err != nil || half.Populated() != o.CapacityBytes || !kept.Clear() {
		t.Errorf("populated: %d bytes, %v", half.Populated(), err)
	}
	o.Touch = func([]byte, bool) error {
		t.Error("kept memory is touched")
		return nil
	}
	whole, err := Adopt(filesOf(t, half), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := whole.Populate(t.Context()); err != nil || whole.Populating() || whole.Populated() != o.CapacityBytes {
		t.Errorf("kept whole: %d bytes, %v", whole.Populated(), err)
	}
	kept.Release()
	for _, a := range []*Arena{half, whole} {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}
