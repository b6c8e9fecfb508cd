package whatif

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/simulate"
	"github.com/kvstored/kvstored/key"
)

// session makes the hashes of the first n chunks of a session, all of which begin with so many
// chunks in common.
func session(id uint64, shared, n int) (hashes []uint64) {
	for i := range n {
		if i < shared {
			hashes = append(hashes, mix(uint64(i)+1))
		} else {
			hashes = append(hashes, mix(id<<32+uint64(i)+1<<20))
		}
	}
	return hashes
}

// offer adds a prompt if its session is in the sample.
func offer(b *book, hashes []uint64, of sizes) bool {
	if b.shift > 0 && !in(b.gate.of(len(hashes), func(i int) uint64 { return hashes[i] }), b.shift) {
		return false
	}
	b.add(hashes, &item{tokens: uint32(256 * len(hashes)), chunk: 256}, 0)
	for b.full() {
		b.shrink(of)
	}
	return true
}

var huge = sizes{1 << 40, 1 << 50}

// TestWholeSessions: a session is in the sample with all its prompts or with none, though all
// sessions begin with the same chunks.
func TestWholeSessions(t *testing.T) {
	b := newBook(maxChunks)
	const sessions, turns = 12_000, 4
	for turn := range turns {
		for id := range uint64(sessions) {
			offer(b, session(id, 20, 24+4*turn), huge)
		}
	}
	if b.shift == 0 || len(b.gate.heads) != 20 {
		t.Fatalf("shift %d, %d heads", b.shift, len(b.gate.heads))
	}
	prompts := map[uint64]int{}
	s := b.copy()
	for _, p := range s.List {
		first := p.Last
		for up := s.Parents[first-1]; up != 0 && up != 20; up = s.Parents[first-1] {
			first = up
		}
		prompts[b.hashes[first-1]]++
	}
	for id, n := range prompts {
		if n != turns {
			t.Errorf("session %x has %d prompts of %d", id, n, turns)
		}
	}
	share := float64(len(prompts)) * float64(int(1)<<s.shift) / sessions
	if share < 0.8 || share > 1.25 {
		t.Errorf("%d of %d sessions are in a sample of one in %d", len(prompts), sessions, 1<<s.shift)
	}
}

// TestBookIsBounded: the sample stays within its bounds under any traffic, and so does the
// memory of a recorder.
func TestBookIsBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		of   sizes
		n    int
		next func(i int) []uint64
	}{
		"always new":           {huge, 40_000, func(i int) []uint64 { return session(uint64(i), 0, 8) }},
		"small caches":         {sizes{100, 1000}, 40_000, func(i int) []uint64 { return session(uint64(i), 5, 12) }},
		"one long prompt":      {huge, 300, func(int) []uint64 { return session(1, 0, queueHashes) }},
		"one session, growing": {huge, 8000, func(i int) []uint64 { return session(1, 0, 1+i/4) }},
		"no caches":            {sizes{}, 80_000, func(i int) []uint64 { return session(uint64(i), 0, 3) }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(maxChunks)
			for i := range tt.n {
				offer(b, tt.next(i), tt.of)
				if len(b.hashes) > maxChunks || len(b.list) > maxPrompts || b.plays > maxPlays || len(b.numbers) != len(b.hashes) {
					t.Fatalf("%d chunks, %d prompts, %d plays", len(b.hashes), len(b.list), b.plays)
				}
			}
		})
	}
}

// TestRoom: for tiers that may have few chunks the sample has room for four times as many, up
// to all that it ever has.
func TestRoom(t *testing.T) {
	for chunks, want := range map[int]int{0: maxChunks, 1: leastChunks, 4096: 4 * 4096, maxChunks / 4: maxChunks, 1 << 20: maxChunks, math.MaxInt: maxChunks} {
		if got := roomFor(chunks); got != want {
			t.Errorf("%d chunks: room for %d, want %d", chunks, got, want)
		}
	}
	b := newBook(roomFor(4096))
	for i := range 40_000 {
		offer(b, session(uint64(i), 5, 12), huge)
		if len(b.hashes) > 4*4096 || len(b.list) > 2*4096 || b.plays > 128*4096 {
			t.Fatalf("%d chunks, %d prompts, %d plays", len(b.hashes), len(b.list), b.plays)
		}
	}
	if b.shift == 0 || b.room != 4*4096 {
		t.Errorf("shift %d, room for %d", b.shift, b.room)
	}
}

// TestAnswersAreStored: the next turn of a conversation hits the answer of the last one,
// which was stored behind its prompt.
func TestAnswersAreStored(t *testing.T) {
	b := newBook(maxChunks)
	b.add(session(1, 0, 4), &item{tokens: 1024, chunk: 256}, 0)
	b.add(session(1, 0, 6), &item{stored: true}, 0)
	b.add(session(1, 0, 7), &item{stored: true}, 0)
	b.add(session(2, 0, 7), &item{stored: true}, 0) // that was not asked for
	b.add(session(1, 0, 8), &item{tokens: 2048, chunk: 256, skip: 256}, 1)
	p := newPlay(b.copy(), Tiers{DRAM: Tier{Bytes: 1, Chunks: 100, Policy: "lru"}, Write: simulate.Auto}, 30_000)
	if _, err := p.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := p.report; r.AskedTokens != 1024+2048-256 || r.Rows[0].Hit != 6*256./(2816) || r.Rows[0].DRAMHit != r.Rows[0].Hit {
		t.Errorf("%+v", r)
	}
}

// TestGateFindsSessions: the first chunk behind the heads decides, however many they are.
func TestGateFindsSessions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		n := 1 + r.IntN(70)
		heads := r.IntN(n + 3)
		c := &key.Chain{Hashes: make([]key.Hash, n), Tokens: make([]uint32, n)}
		g := &gate{heads: map[uint64]struct{}{}}
		for i := range c.Hashes {
			c.Hashes[i] = key.Hash{byte(i), 1}
			if i < heads {
				g.heads[hashOf(&c.Space, &c.Hashes[i])] = struct{}{}
			}
		}
		if want := hashOf(&c.Space, &c.Hashes[min(heads, n-1)]); g.session(c) != want {
			t.Fatalf("%d heads of %d chunks: another chunk decides", heads, n)
		}
	}
}

// TestRecorder: a report is made of the prompts that were asked for, also of none; the queue is bounded.
func TestRecorder(t *testing.T) {
	r := New(Options{
		Tiers: func() Tiers {
			return Tiers{DRAM: Tier{Bytes: 1 << 20, Chunks: 50, Policy: "lru"}, Write: simulate.Auto}
		},
		Busy: func() time.Duration { return time.Hour },
	})
	if rep, err := r.Make(t.Context()); err != nil || rep.Requests != 0 || rep.Bound == nil || rep.Bound.Hit != 0 {
		t.Errorf("of nothing: %+v, %v", rep, err)
	}
	chain := func(id byte, n int) *key.Chain {
		c := &key.Chain{}
		for i := range n {
			c.Hashes = append(c.Hashes, key.Hash{id, byte(i), byte(i >> 8), 1})
			c.Tokens = append(c.Tokens, 256)
		}
		return c
	}
	for range 2 {
		for id := range byte(10) {
			r.Asked(chain(id, 10)) // 100 chunks in a circle: none hits in 50 or 25, all in 200
		}
	}
	r.Asked(&key.Chain{})
	alone := chain(99, 3)
	alone.Alone = true
	r.Asked(alone)
	rep, err := r.Make(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rep.Rows {
		want := map[float64]float64{0.5: 0, 1: 0, 2: 0.5, 4: 0.5}[row.Factor]
		if row.Policy == "lru" && (row.Hit != want || row.HitError != 0 || row.Current != (row.Factor == 1)) {
			t.Errorf("%+v, want a hit rate of %v", row, want)
		}
	}
	if rep.Requests != 20 || rep.Share != 1 || rep.Bound.Hit != 0.5 || len(rep.Rows) != 4*9 || r.Report().At != rep.At {
		t.Errorf("%+v", rep)
	}
	for range 5 {
		r.Asked(chain(7, queueHashes/4))
	}
	if rep, err = r.Make(t.Context()); err != nil || rep.Dropped != 1 || rep.Share != 0.5 {
		t.Errorf("dropped %d, share %v, %v", rep.Dropped, rep.Share, err)
	}
}
