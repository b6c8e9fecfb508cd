package cpu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
)

const testBytes = 1 << 20 // of the arena: 256 ids

// madeRecord is a record that tells all of its own number.
func madeRecord(n uint64) *Record {
	r := &Record{Sum: n * 3, Word: n * 5, Offset: int64(n%200) * arena.AlignBytes, Size: uint32(n%4000) + 1}
	binary.LittleEndian.PutUint64(r.Key.Hash[:], n)
	binary.LittleEndian.PutUint64(r.Key.Space[8:], n*7)
	if n%3 > 0 {
		binary.LittleEndian.PutUint64(r.Parent[8:], n*11)
	}
	return r
}

func newTest(t testing.TB) *Manifest {
	t.Helper()
	m, err := NewManifest(testBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// fileOf is a sealed file in memory with these bytes.
func fileOf(t testing.TB, data []byte) *os.File {
	t.Helper()
	f, err := arena.NewMemory("test", int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	return f
}

// open goes on with a copy of a file, as the next process does.
func open(t testing.TB, f *os.File) *Left {
	t.Helper()
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	m, l, err := OpenManifest(os.NewFile(uintptr(fd), f.Name()), testBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return l
}

// record is entry i without its id.
func record(l *Left, i int) Record {
	_, r := l.Record(i)
	return r
}

// A random life of blocks is read back as a plain map has it, in the order in which the
// records were written.
func TestModel(t *testing.T) {
	m := newTest(t)
	rng := rand.New(rand.NewPCG(1, 1))
	entries, uses := map[uint32]*Record{}, map[uint32]bool{}
	var order []uint32
	for n := range uint64(20_000) {
		id := 1 + rng.Uint32N(255)
		delete(entries, id)
		delete(uses, id)
		switch rng.IntN(4) {
		case 0:
			m.Clear(id)
		case 1:
			m.Use(id, int64(id)*arena.AlignBytes, id)
			uses[id] = true
		default:
			r := madeRecord(n)
			m.Put(id, r)
			entries[id] = r
			order = append(order, id)
		}
	}
	m.Finish()
	m.Clear(1)
	m.Put(2, madeRecord(1))
	l := open(t, m.File())
	if l.Len() != len(entries) || l.Torn() != 0 {
		t.Fatalf("%d entries, %d torn; want %d, 0", l.Len(), l.Torn(), len(entries))
	}
	at := 0
	for i := range order {
		last := -1 // the last time that an id was written counts
		for j := i + 1; j < len(order) && last < 0; j++ {
			if order[j] == order[i] {
				last = j
			}
		}
		if r := entries[order[i]]; r != nil && last < 0 {
			if id, got := l.Record(at); got != *r || id != order[i] || !l.Has(id) {
				t.Fatalf("entry %d is %+v of %d, want %+v of %d", at, got, id, *r, order[i])
			}
			at++
		}
	}
	if at != l.Len() {
		t.Errorf("%d entries in order, of %d", at, l.Len())
	}
	n := 0
	l.Loose(func(id uint32, off int64, size uint32) {
		n++
		if !uses[size] || id != size || off != int64(size)*arena.AlignBytes {
			t.Errorf("a block at %d of %d bytes that was not noted", off, size)
		}
	})
	if n != len(uses) {
		t.Errorf("%d blocks, want %d", n, len(uses))
	}
}

// What a clean stop leaves is the next process's once, and the records go on in their order.
func TestStop(t *testing.T) {
	m := newTest(t)
	for n := range uint64(5) {
		r := madeRecord(n)
		r.Hits, r.Below, r.Dirty = uint8(n), 3, n%2 > 0
		m.Put(uint32(n+1), r)
	}
	if err := m.Stop("tenure", []byte("learned")); err != nil {
		t.Fatal(err)
	}
	m.Put(7, madeRecord(7)) // nothing is written any more
	l := open(t, m.File())
	if !l.Stopped || l.Policy != "tenure" || string(l.Learned) != "learned" || l.Len() != 5 {
		t.Fatalf("stopped %t, %q, %q, %d entries", l.Stopped, l.Policy, l.Learned, l.Len())
	}
	if r := record(l, 3); r.Hits != 3 || r.Below != 3 || !r.Dirty {
		t.Errorf("entry 3 is %+v", r)
	}
	l.of.Put(1, madeRecord(9))
	again := open(t, m.File())
	if again.Stopped || again.Learned != nil {
		t.Error("the stop before the last start counts")
	}
	if r := record(again, 4); r != *madeRecord(9) {
		t.Errorf("the last entry is %+v", r)
	}
	if r := record(again, 3); r.Dirty || r.Below != 0 {
		t.Errorf("what lies below is as of a stop before the last start: %+v", r)
	}
	if err := l.of.Stop("lru", make([]byte, learnedMost+1)); err == nil {
		t.Error("what is too long is kept")
	}
	if l := open(t, m.File()); !l.Stopped || len(l.Learned) > 0 {
		t.Errorf("stopped %t, %d bytes", l.Stopped, len(l.Learned))
	}
}

// The connections that had mapped the arena are known to the next process, and whether
// their processes have ended.
func TestClients(t *testing.T) {
	m := newTest(t)
	own, other := ClientOf(uint32(os.Getpid())), ClientOf(1<<30) // more than any process has
	for _, c := range []Client{own, other, {}} {
		if _, ok := m.Join(c, time.Minute+1); !ok {
			t.Fatal("no slot")
		}
	}
	gone, _ := m.Join(own, math.MaxInt64)
	if gone.LeaseAge < 60*365*24*time.Hour {
		t.Errorf("leases become %v old", gone.LeaseAge)
	}
	m.Leave(gone)
	l := open(t, m.File())
	var clients []Client
	for _, s := range l.Clients {
		clients = append(clients, s.Client)
		if s.LeaseAge != time.Minute+time.Second {
			t.Errorf("leases become %v old", s.LeaseAge)
		}
	}
	if want := []Client{own, other, {}}; !slices.Equal(clients, want) {
		t.Fatalf("clients %v, want %v", clients, want)
	}
	for i, ended := range []bool{false, true, false} {
		if clients[i].Ended() != ended {
			t.Errorf("client %d has ended: %t", i, !ended)
		}
	}
	if (Client{own.PID, own.Start + 1}).Ended() != true {
		t.Error("a process that has the number of another is that")
	}
	l.of.Leave(l.Clients[0])
	binary.LittleEndian.PutUint64(m.mem[spaceAt:], 7) // of another namespace
	if l = open(t, m.File()); len(l.Clients) != 2 || l.Clients[0].PID != 0 || l.Clients[0].Ended() || l.Clients[0].LeaseAge == 0 {
		t.Errorf("clients %v", l.Clients)
	}
	for range MaxClients - 2 {
		m.Join(own, 0)
	}
	if _, ok := m.Join(own, 0); ok {
		t.Error("more clients than slots")
	}
}

// A copy of the file at any moment has only records that were written: as after a kill.
func TestTorn(t *testing.T) {
	m := newTest(t)
	var writers sync.WaitGroup
	stop := make(chan struct{})
	for w := range uint32(3) {
		writers.Go(func() {
			for n := uint64(w); ; n += 3 {
				select {
				case <-stop:
					return
				default:
				}
				id := 1 + 3*uint32(n/3%80) + w
				m.Put(id, madeRecord(n))
				if n%5 == 0 {
					m.Clear(id)
				}
			}
		})
	}
	copied := make([]byte, len(m.mem))
	seen := 0
	for range 100 {
		if _, err := m.File().ReadAt(copied, 0); err != nil {
			t.Fatal(err)
		}
		l := open(t, fileOf(t, copied))
		for i := range l.Len() {
			got := record(l, i)
			if want := madeRecord(binary.LittleEndian.Uint64(got.Key.Hash[:])); got != *want {
				t.Fatalf("a record that was never written: %+v, want %+v", got, *want)
			}
			seen++
		}
	}
	close(stop)
	writers.Wait()
	if seen == 0 {
		t.Error("no record was seen")
	}
}

// A file that is cut short, damaged, of another version or no file in memory is an error
// that says so, and a record of which a bit is flipped is not among the entries.
func TestOpenRefuses(t *testing.T) {
	m := newTest(t)
	for id := range uint32(100) {
		m.Put(id+1, madeRecord(uint64(id)))
	}
	good := bytes.Clone(m.mem)
	change := func(at int, to byte) []byte {
		data := bytes.Clone(good)
		data[at] = to
		return data
	}
	for why, c := range map[string]struct {
		data []byte
		want error
	}{
		"version":       {change(8, 9), ErrVersion},
		"magic":         {change(0, 'x'), ErrDamaged},
		"record size":   {change(12, 64), ErrDamaged},
		"sum":           {change(headerSum, good[headerSum]^1), ErrDamaged},
		"arena":         {change(18, 0), ErrDamaged},
		"used":          {change(usedAt+2, 1), ErrDamaged},
		"cut in header": {good[:100], ErrDamaged},
		"cut":           {good[:recordsAt+5000], ErrDamaged},
		"empty":         {nil, ErrDamaged},
	} {
		if _, _, err := OpenManifest(fileOf(t, c.data), testBytes); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", why, err, c.want)
		}
	}
	if _, _, err := OpenManifest(fileOf(t, good), 2*testBytes); !errors.Is(err, ErrArena) {
		t.Errorf("another arena: error %v", err)
	}
	plain, err := os.Create(t.TempDir() + "/plain")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, _, err := OpenManifest(plain, testBytes); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("a plain file: %v", err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		data := bytes.Clone(good)
		id := 1 + rng.IntN(100)
		data[recordsAt+id*RecordBytes+rng.IntN(RecordBytes)] ^= 1 << rng.IntN(8)
		l := open(t, fileOf(t, data))
		if l.Len() != 99 || l.Torn() != 1 {
			t.Fatalf("record %d with a bit flipped: %d entries, %d torn", id, l.Len(), l.Torn())
		}
	}
}

func FuzzOpen(f *testing.F) {
	m := newTest(f)
	m.Put(1, madeRecord(1))
	m.Use(2, 4096, 5)
	m.Join(Client{PID: 1}, 0)
	if err := m.Stop("lru", []byte("learned")); err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.Clone(m.mem[:recordsAt+4*RecordBytes]))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, l, err := OpenManifest(fileOf(t, data), testBytes)
		if err != nil {
			return
		}
		check := func(off, n int64) {
			if off < 0 || n <= 0 || off+n > testBytes {
				t.Errorf("at %d, +%d, of an arena of %d", off, n, testBytes)
			}
		}
		for i := range l.Len() {
			r := record(l, i)
			check(r.Offset, int64(r.Size))
		}
		l.Loose(func(_ uint32, off int64, size uint32) { check(off, int64(size)) })
	})
}

func BenchmarkPut(b *testing.B) {
	m := newTest(b)
	r := &Record{Key: key.Key{Hash: key.Hash{1}}, Size: 1}
	for b.Loop() {
		m.Put(7, r)
	}
}
