package store

import (
	"math/rand/v2"
	"testing"

	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

func TestMeasure(t *testing.T) {
	const c, d, r = 1 << tier.CPU, 1 << tier.Disk, 1 << tier.Remote
	at := func(p tier.Place) *level { return &level{Tier: writeback.Tier{Place: p}} }
	order := (&levels{all: []*level{at(tier.CPU), at(tier.Disk), at(tier.Remote)}}).order()
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

// A chunk that is being deleted does not come back from transit.
func TestReadmitOrDelete(t *testing.T) {
	var c promotions
	ks := []key.Key{{Hash: key.Hash{1}}}
	back := func(k key.Key) (back bool) {
		c.readmit(k, func() { back = true })
		return back
	}
	end := c.refuse(deletionOf(tier.All, ks))
	if back(ks[0]) || !back(key.Key{Hash: key.Hash{2}}) {
		t.Error("a chunk comes back that is being deleted, or another does not")
	}
	end()
	if !back(ks[0]) {
		t.Error("a chunk does not come back after a deletion")
	}
}
