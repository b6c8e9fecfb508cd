package store

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

func TestMeasure(t *testing.T) {
	const c, d, r = 1 << tier.CPU, 1 << tier.Disk, 1 << tier.Remote
	order := (&levels{all: []*level{{place: tier.CPU}, {place: tier.Disk}, {place: tier.Remote}}}).order()
	for _, tc := range []struct {
		name   string
		at     []uint8
		skip   int
		search tier.Set
		chunks int
		hot    int
		in     [tier.Places]int
	}{
		{"nothing known", nil, 0, tier.All, 0, 0, [tier.Places]int{}},
		{"all hot", []uint8{c, c | d, c | d | r}, 0, tier.All, 3, 3, [tier.Places]int{3}},
		{"nearest counts", []uint8{c | d, d | r, r}, 0, tier.All, 3, 1, [tier.Places]int{1, 1, 1}},
		{"ends at a placeholder", []uint8{d, 0, c}, 0, tier.All, 1, 0, [tier.Places]int{0, 1, 0}},
		{"hot only at the start", []uint8{c, d, c}, 0, tier.All, 3, 1, [tier.Places]int{2, 1, 0}},
		{"skipped do not count", []uint8{0, d, c, c}, 2, tier.All, 2, 2, [tier.Places]int{2, 0, 0}},
		{"skip beyond what is known", []uint8{c}, 2, tier.All, 0, 0, [tier.Places]int{}},
		{"outside the search range", []uint8{d, c, d}, 0, tier.Of(tier.Disk), 1, 0, [tier.Places]int{0, 1, 0}},
		{"hot but not searched", []uint8{c | d, c}, 0, tier.Of(tier.Disk), 1, 0, [tier.Places]int{0, 1, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			chain := &key.Chain{Skip: tc.skip}
			var tokens uint64
			for i := range tc.at {
				chain.Tokens = append(chain.Tokens, uint32(100+i))
				if i >= tc.skip && i < tc.skip+tc.chunks {
					tokens += uint64(100 + i)
				}
			}
			m := measure(&order, chain, tc.at, tc.search)
			if m.Chunks != tc.chunks || m.Hot != tc.hot || m.Tokens != tokens {
				t.Errorf("got %+v; want %d chunks, %d hot, %d tokens", m, tc.chunks, tc.hot, tokens)
			}
			var sum uint64
			for p, in := range m.In {
				if sum += in.Tokens; in.Chunks != tc.in[p] {
					t.Errorf("%d chunks in %s; want %d", in.Chunks, tier.Place(p), tc.in[p])
				}
			}
			if sum != tokens {
				t.Errorf("%d tokens over the tiers; want %d", sum, tokens)
			}
		})
	}
}

// The fifo does what a slice does.
func FuzzFifo(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0, 0, 4, 255, 0, 5})
	f.Add(slices.Repeat([]byte{1, 1, 1, 0}, 3*segment))
	f.Add(append(slices.Repeat([]byte{1}, segment), slices.Repeat([]byte{0}, segment)...))
	f.Fuzz(func(t *testing.T, ops []byte) {
		var r fifo[byte]
		var model []byte
		for _, op := range ops {
			switch {
			case op == 0 && len(model) > 0:
				if got := r.pop(); got != model[0] {
					t.Fatalf("popped %d; want %d", got, model[0])
				}
				model = model[1:]
			default:
				r.push(op)
				model = append(model, op)
			}
			if r.len() != len(model) {
				t.Fatalf("%d elements; want %d", r.len(), len(model))
			}
			if len(model) > 0 && *r.front() != model[0] {
				t.Fatalf("the front is %d; want %d", *r.front(), model[0])
			}
		}
	})
}

// However a stream is cut into calls, exactly every so-manieth is picked.
func TestSampler(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, every := range []int{1, 2, 3, 7, 256} {
		var s sampler
		s.every.Store(uint64(every))
		var picks []int
		seen := 0
		for seen < 20*every {
			n := rnd.IntN(2*every + 2)
			for i, ok := s.next(0, n); ok; i, ok = s.next(i+1, n) {
				picks = append(picks, seen+i)
			}
			seen += n
		}
		if len(picks) != seen/every {
			t.Errorf("1 of %d: %d picks of %d", every, len(picks), seen)
		}
		for i, p := range picks {
			if p != (i+1)*every-1 {
				t.Errorf("1 of %d: pick %d is %d; want %d", every, i, p, (i+1)*every-1)
				break
			}
		}
	}
	if _, ok := new(sampler).next(0, 100); ok {
		t.Error("a sampler that is off picks")
	}
}

// The items remembered for a tier in trouble are bounded; the oldest goes first.
func TestMissedBound(t *testing.T) {
	const more = 10
	b := newBacklog(false)
	for i := range maxRetry + more {
		b.toRetry(item{rec: tier.Record{Depth: uint32(i)}})
	}
	if n, first := b.retry.len(), b.retry.front().rec.Depth; n != maxRetry || first != more {
		t.Errorf("%d chunks from %d on; want %d from %d on", n, first, maxRetry, more)
	}
}

// A chunk that is being deleted does not come back from transit.
func TestReadmitOrDelete(t *testing.T) {
	var c promotions
	ks := []key.Key{{Hash: key.Hash{1}}}
	back := func(k key.Key) (back bool) {
		c.readmit(k, func() { back = true })
		return back
	}
	end := c.refuse(deletionOf(context.Background(), tier.All, ks))
	if back(ks[0]) || !back(key.Key{Hash: key.Hash{2}}) {
		t.Error("a chunk comes back that is being deleted, or another does not")
	}
	end()
	if !back(ks[0]) {
		t.Error("a chunk does not come back after a deletion")
	}
}

// Maps of writes that were long give their room back when they are empty, and work
// as before.
func TestMapsOfWritesShrink(t *testing.T) {
	var d transit
	b := newBacklog(true)
	for round := range 2 {
		const n = keptRoom + 1
		var items [n]item
		var lives [n]uint64
		for i := range items {
			items[i].rec.Key.Hash[0], items[i].rec.Key.Hash[1] = byte(i), byte(i>>8)
			b.move(&items[i], pending)
			lives[i], _ = d.begin(items[i].rec, arena.Block{}, nil)
		}
		if len(b.queued) != n || len(d.mu.chunks) != n {
			t.Fatalf("round %d: %d queued and %d in transit, want %d", round, len(b.queued), len(d.mu.chunks), n)
		}
		for i := range items {
			if !d.has(items[i].rec.Key) {
				t.Fatalf("round %d: chunk %d is not in transit", round, i)
			}
			b.move(&items[i], done)
			d.end(items[i].rec.Key, lives[i])
		}
		if b.peak > keptRoom || len(b.queued) != 0 || d.mu.chunks != nil {
			t.Errorf("round %d: the room of %d stays", round, n)
		}
	}
}
