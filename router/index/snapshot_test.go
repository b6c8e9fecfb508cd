package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/xxh3"
)

// sample is an index with some of everything.
func sample(t testing.TB) *Index {
	t.Helper()
	x, err := New(Options{Now: func() time.Time { return time.Unix(1e9, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	var errs []error
	for w := range 4 {
		o := WorkerOptions{Scheme: []string{"", "s", "s", ""}[w]}
		if w == 3 {
			o.TTL = time.Minute
		}
		errs = append(errs, x.Register(Worker{ID: fmt.Sprint("w", w), Rank: uint32(w)}, o))
	}
	for _, n := range []Name{{Model: "a"}, {Model: "a", Salt: "t"}, {Model: "b", LoRA: "l"}} {
		s, err := x.Open(n, Config{BlockTokens: 2, Groups: make([]Group, 2), Hash: DynamoHash(n.LoRA, n.Salt)})
		errs = append(errs, err)
		for w := range 4 {
			at := At{Worker: Worker{ID: fmt.Sprint("w", w), Rank: uint32(w)}, Group: w % 2, Medium: Medium(w)}
			_, err1 := s.Announce(at, Announcement{Hashes: []uint64{1, 2, 3}, Tokens: []uint32{1, 1, 2, 2, 3, 3}, BlockTokens: 2})
			_, err2 := s.Announce(at, Announcement{Parent: After(2), Hashes: []uint64{uint64(10 * w)}, Tokens: []uint32{8, uint32(w)}, BlockTokens: 2})
			_, err3 := s.Withdraw(at, []uint64{2})
			errs = append(errs, err1, err2, err3)
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return x
}

func TestSnapshotOfAll(t *testing.T) {
	x := sample(t)
	first := x.Snapshot()
	y, err := Restore(first, x.options)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range y.Names() {
		s, err := y.Shard(n)
		if err != nil {
			t.Fatal(err)
		}
		check(t, s)
	}
	a, b := x.Stats(), y.Stats()
	if a.Memory = b.Memory; a != b {
		t.Errorf("%+v, was %+v", b, a)
	}
	z, err := Restore(y.Snapshot(), y.options)
	if err != nil || z.Stats() != b {
		t.Errorf("restored twice: %v", err)
	}
	if n := y.Expire(); n != 0 {
		t.Errorf("%d claims expired at once", n)
	}
	y.options.Now = func() time.Time { return time.Unix(1e9+60, 0) }
	if n := y.Expire(); n == 0 || y.Stats().Claims != 0 {
		t.Errorf("%d claims expired after a minute, %d are left", n, y.Stats().Claims)
	}
}

func TestWrongSnapshots(t *testing.T) {
	whole := sample(t).Snapshot()
	flipped := append([]byte(nil), whole...)
	flipped[len(flipped)/2] ^= 4
	for _, c := range []struct {
		name string
		in   []byte
		o    Options
		want error
		says string
	}{
		{"none", nil, Options{}, ErrSnapshot, "does not begin"},
		{"another file", []byte("PNG 0123456789 0123456789"), Options{}, ErrSnapshot, "does not begin"},
		{"cut", whole[:len(whole)-1], Options{}, ErrSnapshot, "checksum"},
		{"a bit flipped", flipped, Options{}, ErrSnapshot, "checksum"},
		{"another version", signed(append([]byte("kvindex\x01"), whole[8:]...)), Options{}, ErrSnapshot, "does not begin"},
		{"bytes behind the end", signed(append(append([]byte(nil), whole[:len(whole)-8]...), make([]byte, 9)...)), Options{}, ErrSnapshot, "1 bytes behind"},
		{"cut, with a checksum", signed(append(append([]byte(nil), whole[:100]...), make([]byte, 8)...)), Options{}, ErrSnapshot, "no "},
		{"fewer workers allowed", whole, Options{MaxWorkers: 3}, ErrSnapshot, "number of workers is 4, at most 3"},
		{"fewer shards allowed", whole, Options{MaxShards: 2}, ErrSnapshot, "number of shards is 3, at most 2"},
		{"a wrong option", whole, Options{Bytes: -1}, ErrOption, "Bytes"},
	} {
		if _, err := Restore(c.in, c.o); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %v, and %q in it", c.name, err, c.want, c.says)
		}
	}
}

// signed puts the right checksum at the end.
func signed(snapshot []byte) []byte {
	body := snapshot[:len(snapshot)-8]
	binary.LittleEndian.PutUint64(snapshot[len(body):], xxh3.Hash(body))
	return snapshot
}

// A snapshot of more than the budget is refused before it takes much more.
func TestSnapshotBeyondTheBudget(t *testing.T) {
	x, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Register(Worker{ID: "w"}, WorkerOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err := x.Open(Name{Model: "m"}, Config{BlockTokens: 1})
	if err != nil {
		t.Fatal(err)
	}
	chain := make([]uint64, 3000)
	for i := range chain {
		chain[i] = uint64(i)
	}
	if _, err := s.Store(At{Worker: Worker{ID: "w"}}, Root, chain); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(x.Snapshot(), Options{Bytes: minBytes}); !errors.Is(err, ErrSnapshot) || !strings.Contains(err.Error(), "budget") {
		t.Error(err)
	}
}

// FuzzRestore: any bytes are refused with an error, or make an index that keeps
// all its rules and works.
func FuzzRestore(f *testing.F) {
	whole := sample(f).Snapshot()
	f.Add(whole[len(snapshotMagic) : len(whole)-8])
	empty, _ := New(Options{})
	whole = empty.Snapshot()
	f.Add(whole[len(snapshotMagic) : len(whole)-8])
	f.Fuzz(func(t *testing.T, body []byte) {
		in := append([]byte(snapshotMagic), body...)
		in = signed(append(in, make([]byte, 8)...))
		x, err := Restore(in, Options{Bytes: 1 << 20, MaxWorkers: 100, MaxShards: 10})
		if err != nil {
			if !errors.Is(err, ErrSnapshot) {
				t.Fatal(err)
			}
			return
		}
		for _, n := range x.Names() {
			s, err := x.Shard(n)
			if err != nil {
				t.Fatal(err)
			}
			check(t, s)
		}
		again, err := Restore(x.Snapshot(), x.options)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := x.Stats(), again.Stats(); a.Blocks != b.Blocks || a.Aliases != b.Aliases || a.Claims != b.Claims || a.Sets != b.Sets {
			t.Fatalf("%+v, was %+v", b, a)
		}
		for _, w := range x.Workers() {
			if err := x.Unregister(w); err != nil {
				t.Fatal(err)
			}
		}
		if s := x.Stats(); s.Blocks+s.Sets+s.Aliases+s.Claims != 0 {
			t.Fatalf("left when all workers are gone: %+v", s)
		}
	})
}
