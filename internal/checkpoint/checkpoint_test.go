package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zeebo/xxh3"
)

type memory struct{ p []byte }

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p) - len(m.p); need > 0 {
		m.p = append(m.p, make([]byte, need)...)
	}
	return copy(m.p[off:], p), nil
}

const testArena = int64(math.MaxUint32)*unitBytes + unitBytes

// write makes a checkpoint of n random entries.
func write(t testing.TB, n int) (data []byte, rs []Record, vs []Void, learned []byte) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(n), 7))
	var m memory
	w, err := NewWriter(&m, testArena, "s3fifo")
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		r := Record{
			Offset: int64(rng.Uint32()) * unitBytes, Size: 1 + rng.Uint32N(unitBytes), Sum: rng.Uint64(), Word: rng.Uint64(),
			Hits: uint8(rng.Uint32()), Below: uint8(rng.Uint32()), Dirty: rng.IntN(2) == 0,
		}
		binary.LittleEndian.PutUint64(r.Key.Hash[:], rng.Uint64())
		binary.LittleEndian.PutUint64(r.Parent[:], rng.Uint64())
		r.Key.Space[15] = byte(rng.IntN(4))
		w.Add(&r)
		rs = append(rs, r)
	}
	vs = []Void{{0, unitBytes}, {testArena - unitBytes, unitBytes}}
	learned = bytes.Repeat([]byte("what it knows"), n)
	if err := w.Close(vs, learned); err != nil {
		t.Fatal(err)
	}
	return m.p, rs, vs, learned
}

func TestRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 3*chunkBytes/RecordBytes + 5} {
		data, rs, vs, learned := write(t, n)
		f, err := Open(data)
		if err != nil {
			t.Fatal(err)
		}
		if f.Len() != n || f.ArenaBytes() != testArena || f.Policy() != "s3fifo" || !slices.Equal(f.Voids(), vs) || !bytes.Equal(f.Learned(), learned) {
			t.Fatalf("%d entries became %d, of %d bytes under %q", n, f.Len(), f.ArenaBytes(), f.Policy())
		}
		for i, r := range rs {
			if got := f.Record(i); got != r {
				t.Fatalf("entry %d was %+v and is %+v", i, r, got)
			}
		}
	}
}

// Every byte counts: a file of which one is flipped, or which ends early or late, is
// refused whole.
func TestDamageIsTold(t *testing.T) {
	data, _, _, _ := write(t, 20)
	for i := range data {
		bad := slices.Clone(data)
		bad[i] ^= 1 << (i % 8)
		if _, err := Open(bad); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) {
			t.Fatalf("byte %d was flipped: %v", i, err)
		}
		if _, err := Open(data[:i]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
	if _, err := Open(append(slices.Clone(data), 0)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte more: %v", err)
	}
}

func TestOtherVersionsAreTold(t *testing.T) {
	for _, v := range []uint32{0, Version + 1, math.MaxUint32} {
		data, _, _, _ := write(t, 3)
		binary.LittleEndian.PutUint32(data[8:], v)
		if _, err := Open(data); !errors.Is(err, ErrVersion) {
			t.Errorf("version %d: %v", v, err)
		}
	}
}

// A file that has its checksum and makes no sense is refused too.
func TestNonsenseIsTold(t *testing.T) {
	for name, change := range map[string]func(data []byte){
		"a space that is not there": func(p []byte) { binary.LittleEndian.PutUint32(p[headerBytes+56:], 99) },
		"no bytes":                  func(p []byte) { binary.LittleEndian.PutUint32(p[headerBytes+52:], 0) },
		"behind the arena":          func(p []byte) { binary.LittleEndian.PutUint64(p[16:], unitBytes) },
		"an arena below nothing":    func(p []byte) { binary.LittleEndian.PutUint64(p[16:], 1<<63) },
		"entries without end":       func(p []byte) { binary.LittleEndian.PutUint64(p[24:], 1<<58) },
	} {
		data, _, _, _ := write(t, 3)
		change(data)
		binary.LittleEndian.PutUint64(data[sumAt:], fold(data[:sumAt], xxh3.Hash(data[headerBytes:])))
		if _, err := Open(data); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type full struct{}

var errFull = errors.New("no room")

func (full) WriteAt([]byte, int64) (int, error) { return 0, errFull }

func TestAWriteThatFailsIsTold(t *testing.T) {
	w, err := NewWriter(full{}, testArena, "lru")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * chunkBytes / RecordBytes {
		w.Add(&Record{Size: 1})
	}
	if err := w.Close(nil, nil); !errors.Is(err, errFull) {
		t.Errorf("Close: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	data, _, _, _ := write(f, 3)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := Open(data); err == nil {
			for i := range c.Len() {
				c.Record(i)
			}
		}
	})
}
