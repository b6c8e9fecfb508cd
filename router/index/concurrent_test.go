package index

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// TestReadersBesideWriters: what a worker has throughout is found throughout,
// and what it never had is never found, while all else changes and tables,
// pages and sets are made anew.
func TestReadersBesideWriters(t *testing.T) {
	for _, groups := range [][]Group{{{}}, {{}, {Kind: State}, {Kind: Window, Tokens: 3}}} {
		t.Run(fmt.Sprint(groups), func(t *testing.T) { readBesideWriters(t, groups) })
	}
}

func readBesideWriters(t *testing.T, groups []Group) {
	const workers, depth = 6, 40
	x, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.Open(Name{Model: "m"}, Config{BlockTokens: 1, Groups: groups})
	if err != nil {
		t.Fatal(err)
	}
	chain := make([]uint64, depth)
	for i := range chain {
		chain[i] = uint64(i + 1)
	}
	// Worker w has the first 5*w blocks, always; worker 1 all of them at times,
	// worker 0 the first 7 at times.
	for w := range workers {
		if err := x.Register(Worker{ID: fmt.Sprint(w)}, WorkerOptions{}); err != nil {
			t.Fatal(err)
		}
		storeAll(t, s, At{Worker: Worker{ID: fmt.Sprint(w)}}, Root, chain[:5*w])
	}
	var done atomic.Bool
	var writers, readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for !done.Load() {
				checkFound(t, s, chain)
			}
		})
	}
	writers.Go(func() { upAndDown(t, s, chain) })
	writers.Go(func() { churn(t, s) })
	writers.Go(func() { comeAndGo(t, x, s, chain) })
	writers.Wait()
	done.Store(true)
	readers.Wait()
	check(t, s)
}

// TestOvertakenSearch: what a search has looked at is not taken for what came there since.
func TestOvertakenSearch(t *testing.T) {
	x, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.Open(Name{Model: "m"}, Config{BlockTokens: 1})
	if err != nil {
		t.Fatal(err)
	}
	at := func(id string) At { return At{Worker: Worker{ID: id}} }
	join := func(id string) {
		if err := x.Register(Worker{ID: id}, WorkerOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		join(id)
	}
	one, two := []uint64{1}, []uint64{2, 3}
	storeAll(t, s, at("a"), Root, one)
	storeAll(t, s, at("b"), Root, one)
	f := &finder{shard: s, t: s.tree.Load(), hashes: one, count: 1}

	seen := f.look(0) // a and b
	removeAll(t, s, at("b"), one)
	storeAll(t, s, at("c"), Root, two)
	storeAll(t, s, at("d"), Root, two)
	if other := f.t.blocks.at(f.t.table.get(two[0])).coverSet(); other != seen.set {
		t.Fatalf("the set has place %d, not %d", other, seen.set)
	}
	if holders, same := seen.block.content(nil, seen.word, f.t.sets); same {
		t.Errorf("block 1 is said to be of %v, who have block 2", holders)
	}

	before := x.workers.Load()
	if err := x.Unregister(Worker{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	join("e") // it has the slot
	storeAll(t, s, at("e"), Root, one)
	if all, found := f.attempt(nil, before, s, FindOptions{}); found {
		t.Errorf("found %v, of whom one has left", all)
	}
	if all := s.Find(nil, one, FindOptions{}); len(all) != 1 || all[0].Worker.ID != "e" {
		t.Errorf("found %v, want e", all)
	}
	check(t, s)
}

// storeAll stores blocks of all groups; removeAll removes them.
func storeAll(t *testing.T, s *Shard, at At, parent Parent, hashes []uint64) {
	for at.Group = range s.config.Groups {
		if _, err := s.Store(at, parent, hashes); err != nil {
			t.Error(err)
		}
	}
}

func removeAll(t *testing.T, s *Shard, at At, hashes []uint64) {
	for at.Group = range s.config.Groups {
		if _, err := s.Remove(at, hashes); err != nil {
			t.Error(err)
		}
	}
}

var rounds = flag.Int("index.rounds", 500, "rounds of the writers of TestReadersBesideWriters")

// checkFound compares one answer with all that it may be.
func checkFound(t *testing.T, s *Shard, chain []uint64) {
	seen := 0
	for _, m := range s.Find(nil, chain, FindOptions{}) {
		var w int
		if n, _ := fmt.Sscanf(m.Worker.ID, "%d", &w); n == 0 {
			if most := map[string]int{"a": 2, "b": 3}[m.Worker.ID]; m.Usable > most {
				t.Errorf("%v never had so much", m)
			}
			continue
		}
		seen++
		low, high := 5*w, 5*w
		switch w {
		case 0:
			low, high, seen = 0, 7, seen-1
		case 1:
			high = len(chain)
		}
		if m.Usable < low || m.Usable > high {
			t.Errorf("%v, want %d to %d", m, low, high)
		}
	}
	if seen != 5 {
		t.Errorf("%d of 5 workers found", seen)
	}
}

// upAndDown has worker 1 take and lose the end of the chain, block by block or
// with a hole, and worker 0 its beginning.
func upAndDown(t *testing.T, s *Shard, chain []uint64) {
	one, zero := At{Worker: Worker{ID: "1"}}, At{Worker: Worker{ID: "0"}}
	for i := range *rounds {
		storeAll(t, s, one, After(chain[4]), chain[5:])
		storeAll(t, s, zero, Root, chain[:7])
		if i%2 == 0 {
			removeAll(t, s, one, chain[20:21])
		}
		removeAll(t, s, one, chain[5:])
		removeAll(t, s, zero, chain[:7])
	}
}

// churn stores and removes other blocks, so that the table grows and shrinks.
func churn(t *testing.T, s *Shard) {
	rnd := rand.New(rand.NewPCG(3, 3))
	for i := range *rounds / 10 {
		at := At{Worker: Worker{ID: fmt.Sprint(2 + i%4)}}
		other := make([]uint64, 1+rnd.IntN(2000))
		for j := range other {
			other[j] = rnd.Uint64() | 1<<63
		}
		if _, err := s.Store(at, Root, other); err != nil {
			t.Error(err)
		}
		if n, err := s.Remove(at, other); n != 0 || err != nil {
			t.Error(n, err)
		}
		if i%10 == 0 {
			s.mu.Lock()
			s.tree.Store(s.tree.Load().repacked())
			s.settle()
			s.mu.Unlock()
		}
	}
}

// comeAndGo has two workers use one slot in turns.
func comeAndGo(t *testing.T, x *Index, s *Shard, chain []uint64) {
	for i := range *rounds {
		w := Worker{ID: []string{"a", "b"}[i%2]}
		if err := x.Register(w, WorkerOptions{}); err != nil {
			t.Error(err)
		}
		storeAll(t, s, At{Worker: w}, Root, chain[:2+i%2])
		if err := x.Unregister(w); err != nil {
			t.Error(err)
		}
	}
}
