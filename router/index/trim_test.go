package index

import (
	"fmt"
	"testing"
	"time"
)

// fixture is an index with a small budget and a clock of its own.
type fixture struct {
	t   *testing.T
	x   *Index
	now time.Time
	at  At
}

func newFixture(t *testing.T, o Options) *fixture {
	f := &fixture{t: t, now: time.Unix(1e9, 0), at: At{Worker: Worker{ID: "w"}}}
	o.Now = func() time.Time { return f.now }
	x, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Register(f.at.Worker, WorkerOptions{}); err != nil {
		t.Fatal(err)
	}
	f.x = x
	return f
}

func (f *fixture) open(model string) *Shard {
	s, err := f.x.Open(Name{Model: model}, Config{BlockTokens: 1})
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// prompt is a chain of its own.
func prompt(number, length int) []uint64 {
	all := make([]uint64, length)
	for i := range all {
		all[i] = uint64(number)<<20 | uint64(i)
	}
	return all
}

func (f *fixture) store(s *Shard, hashes []uint64) {
	f.t.Helper()
	f.now = f.now.Add(time.Second)
	if _, err := s.Store(f.at, Root, hashes); err != nil {
		f.t.Fatal(err)
	}
}

func depth(s *Shard, hashes []uint64) int {
	if m := s.Find(nil, hashes, FindOptions{}); len(m) > 0 {
		return m[0].Usable
	}
	return 0
}

// The budget holds, over all shards; the coldest prompts go, and whole ones.
func TestBudget(t *testing.T) {
	f := newFixture(t, Options{Bytes: minBytes})
	a, b := f.open("a"), f.open("b")
	const length = 20
	fits := minBytes / (blockBytes + tableBytes) / length // prompts
	stored := 3 * fits
	for i := range stored {
		f.store([]*Shard{a, b}[i%2], prompt(i, length))
		if got := f.x.bytes.Load(); got > minBytes {
			t.Fatalf("%d bytes after prompt %d", got, i)
		}
		if depth(a, prompt(0, length)) != length { // in use all the time
			t.Fatalf("prompt 0 went with prompt %d", i)
		}
	}
	held, torn := 0, 0
	for i := range stored {
		s := []*Shard{a, b}[i%2]
		f.x.ticks.Store(0) // a look that does not count
		switch d := depth(s, prompt(i, length)); {
		case d == length:
			held++
		case d > 0:
			torn++
		case i >= stored-fits*7/8:
			t.Errorf("prompt %d of %d went, though %d fit", i, stored, fits)
		}
	}
	if held < fits*7/8 || held > fits || torn > 2 {
		t.Errorf("%d prompts held, %d of them in part; %d fit", held, torn, fits)
	}
	check(t, a)
	check(t, b)
	if n := f.x.Stats().Trimmed; n < int64(fits*length) {
		t.Errorf("%d blocks trimmed", n)
	}
}

// A leaf goes, never what stands below one, and a block is as warm as what stood
// on it.
func TestColdestLeafFirst(t *testing.T) {
	f := newFixture(t, Options{Bytes: minBytes})
	s := f.open("a")
	shared := prompt(1, 10)
	f.store(s, append(append([]uint64(nil), shared...), prompt(2, 10)...)) // the oldest leaf
	f.store(s, append(append([]uint64(nil), shared...), prompt(3, 10)...))
	for i := range 200 {
		f.store(s, prompt(10+i, 10))
		f.now = f.now.Add(time.Second)
		depth(s, append(append([]uint64(nil), shared...), prompt(3, 10)...))
	}
	if got := depth(s, append(append([]uint64(nil), shared...), prompt(2, 10)...)); got != 10 {
		t.Errorf("%d blocks of the coldest prompt are left; want the 10 that a warm one shares", got)
	}
	if got := depth(s, append(append([]uint64(nil), shared...), prompt(3, 10)...)); got != 20 {
		t.Errorf("%d blocks of the warm prompt are left", got)
	}
	check(t, s)
}

// One event of more than the budget leaves no more than it.
func TestEventBeyondTheBudget(t *testing.T) {
	f := newFixture(t, Options{Bytes: minBytes})
	s := f.open("a")
	f.store(s, prompt(1, 60000))
	if got := f.x.bytes.Load(); got > minBytes {
		t.Errorf("%d bytes", got)
	}
	check(t, s)
}

// Memory follows what is in use: a tree that is mostly empty is packed anew.
func TestMemoryComesBack(t *testing.T) {
	f := newFixture(t, Options{})
	s := f.open("a")
	for i := range 100 {
		f.store(s, prompt(i, 1000))
	}
	full := f.x.Stats()
	if full.Memory > 2*full.Bytes {
		t.Errorf("full: %+v", full)
	}
	for i := 1; i < 100; i++ {
		if _, err := s.Remove(f.at, prompt(i, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	if left := f.x.Stats(); left.Blocks != 1000 || left.Memory > 2*left.Bytes+packBytes {
		t.Errorf("after: %+v", left)
	}
	if depth(s, prompt(0, 1000)) != 1000 {
		t.Error("what stayed is not found")
	}
	check(t, s)
}

// Many sets of many workers: their words are counted, given back and used again.
func TestLargeSets(t *testing.T) {
	const workers = 1500 // of which the sets need pages of their own
	f := newFixture(t, Options{})
	s := f.open("a")
	chain := prompt(0, 3)
	for w := range workers {
		at := At{Worker: Worker{ID: fmt.Sprint(w)}}
		if err := f.x.Register(at.Worker, WorkerOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Store(at, Root, chain[:1+w%3]); err != nil {
			t.Fatal(err)
		}
	}
	check(t, s)
	depths := make(map[int]int)
	for _, m := range s.Find(nil, chain, FindOptions{}) {
		depths[m.Usable]++
	}
	if depths[1] != 500 || depths[2] != 500 || depths[3] != 500 {
		t.Errorf("workers by depth: %v", depths)
	}
	for w := range workers {
		if err := f.x.Unregister(Worker{ID: fmt.Sprint(w)}); err != nil {
			t.Fatal(err)
		}
	}
	check(t, s)
	if n := f.x.Stats(); n.Sets != 0 || n.Blocks != 0 || n.Memory > 4<<20 {
		t.Errorf("%+v", n)
	}
}
