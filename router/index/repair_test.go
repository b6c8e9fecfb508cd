package index_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/router/index"
)

// engine is a worker that evicts from the ends of chains, and its blocks.
type engine struct {
	at    index.At
	holds map[uint64]uint64 // block to parent; 0 is the root
}

// message is one event: blocks stored behind a parent, or removed, or all.
type message struct {
	at      index.At
	parent  uint64
	hashes  []uint64
	removed bool
	cleared bool
}

func (m message) apply(s *index.Shard) error {
	switch {
	case m.cleared:
		return s.Clear(m.at.Worker)
	case m.removed:
		_, err := s.Remove(m.at, m.hashes)
		return err
	default:
		_, err := s.Store(m.at, after(m.parent), m.hashes)
		return err
	}
}

func after(hash uint64) index.Parent {
	if hash == 0 {
		return index.Root
	}
	return index.After(hash)
}

// prompt makes a chain of one of few branches at each block.
func prompt(rnd *rand.Rand) []uint64 {
	chain := make([]uint64, 1+rnd.IntN(20))
	for i := range chain {
		parent := uint64(1)
		if i > 0 {
			parent = chain[i-1]
		}
		chain[i] = parent*4 + uint64(min(rnd.IntN(12), 3))*0x9e3779b97f4a7c15 + 1
	}
	return chain
}

// step has the engine compute a prompt, evict some ends of chains, or restart.
func (e *engine) step(rnd *rand.Rand) message {
	switch r := rnd.IntN(1000); {
	case r == 0:
		clear(e.holds)
		return message{at: e.at, cleared: true}
	case r < 400:
		inner := make(map[uint64]bool)
		for _, p := range e.holds {
			inner[p] = true
		}
		gone := message{at: e.at, removed: true}
		for hash := range e.holds {
			if !inner[hash] && len(gone.hashes) < 10 {
				gone.hashes = append(gone.hashes, hash)
			}
		}
		slices.Sort(gone.hashes)
		for _, hash := range gone.hashes {
			delete(e.holds, hash)
		}
		return gone
	default:
		chain, parent := prompt(rnd), uint64(0)
		for len(chain) > 0 {
			if _, has := e.holds[chain[0]]; !has {
				break
			}
			parent, chain = chain[0], chain[1:]
		}
		m := message{at: e.at, parent: parent, hashes: chain}
		for _, hash := range chain {
			e.holds[hash], parent = parent, hash
		}
		return m
	}
}

// repair says all that an engine has, parents first, after a Clear.
func (e *engine) repair(t *testing.T, s *index.Shard) {
	t.Helper()
	if err := s.Clear(e.at.Worker); err != nil {
		t.Fatal(err)
	}
	children := make(map[uint64][]uint64)
	for hash, parent := range e.holds {
		children[parent] = append(children[parent], hash)
	}
	for open := []uint64{0}; len(open) > 0; {
		parent := open[len(open)-1]
		open = open[:len(open)-1]
		for _, hash := range children[parent] {
			if _, err := s.Store(e.at, after(parent), []uint64{hash}); err != nil {
				t.Fatal(err)
			}
			open = append(open, hash)
		}
	}
}

// TestRepair: of the events of some engines a part is lost, comes twice, or comes
// late; one engine restarts and says nothing of it. After each has been asked
// anew the index is as if all had come as they should.
func TestRepair(t *testing.T) {
	for _, workers := range []int{8, 64, 300} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(workers), 7))
			clean, hurt := repairShard(t, workers), repairShard(t, workers)
			engines := make([]*engine, workers)
			for w := range engines {
				engines[w] = &engine{at: index.At{Worker: index.Worker{ID: fmt.Sprint(w)}}, holds: make(map[uint64]uint64)}
			}
			var late []message
			differ := 0
			for i := range 3000 {
				m := engines[rnd.IntN(workers)].step(rnd)
				if err := m.apply(clean); err != nil {
					t.Fatal(err)
				}
				if late = disturb(t, rnd, hurt, m, late); i%10 == 0 {
					differ += compare(rnd, clean, hurt)
				}
			}
			if differ == 0 {
				t.Error("no answer was ever wrong: nothing was disturbed")
			}
			for _, e := range engines {
				e.repair(t, hurt)
			}
			for range 2000 {
				if n := compare(rnd, clean, hurt); n > 0 {
					t.Fatal("an answer is wrong after the repair")
				}
			}
			a, b := clean.Stats(), hurt.Stats()
			if a.Blocks != b.Blocks || a.Sets != b.Sets || a.Bytes != b.Bytes {
				t.Errorf("after the repair %+v, of the clean run %+v", b, a)
			}
		})
	}
}

func repairShard(t *testing.T, workers int) *index.Shard {
	t.Helper()
	x, err := index.New(index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for w := range workers {
		if err := x.Register(index.Worker{ID: fmt.Sprint(w)}, index.WorkerOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := x.Open(index.Name{Model: "m"}, index.Config{BlockTokens: 16})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// disturb loses, doubles or delays a message, and returns those that are late.
// The errors that this may cause are those of unknown parents.
func disturb(t *testing.T, rnd *rand.Rand, s *index.Shard, m message, late []message) []message {
	t.Helper()
	now := []message{m}
	switch r := rnd.IntN(100); {
	case r < 3 || m.cleared && m.at.Worker.ID == "0":
		now = nil
	case r < 6:
		now = append(now, m)
	case r < 9:
		return append(late, m)
	}
	if len(late) > 5 {
		now, late = append(now, late...), nil
	}
	for _, m := range now {
		if err := m.apply(s); err != nil && !errors.Is(err, index.ErrUnknownParent) {
			t.Fatal(err)
		}
	}
	return late
}

// compare returns how many of two indexes' answers about a prompt differ.
func compare(rnd *rand.Rand, a, b *index.Shard) int {
	chain := prompt(rnd)
	if slices.Equal(a.Find(nil, chain, index.FindOptions{}), b.Find(nil, chain, index.FindOptions{})) {
		return 0
	}
	return 1
}
