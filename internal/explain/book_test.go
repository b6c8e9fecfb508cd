package explain

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

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
func offer(b *book, hashes []uint64, of sizes) bool { return offerOf(b, 0, hashes, nil, of) }

// offerOf adds a prompt of a space, in two parts.
func offerOf(b *book, space uint64, hashes, more []uint64, of sizes) bool {
	hashes = append(hashes, more...)
	if b.shift > 0 && !b.gate.isNew(space) && !in(b.gate.of(len(hashes), func(i int) uint64 { return hashes[i] }), b.shift) {
		return false
	}
	b.add(hashes, &item{tokens: uint32(256 * len(hashes)), chunk: 256, space: space}, 0)
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
	var s Sample
	b.fill(&s)
	for _, p := range s.Prompts {
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
	share := float64(len(prompts)) * float64(int(1)<<s.Shift) / sessions
	if share < 0.8 || share > 1.25 {
		t.Errorf("%d of %d sessions are in a sample of one in %d", len(prompts), sessions, 1<<s.Shift)
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
				if len(b.hashes) > maxChunks || len(b.list) > maxChunks/chunksInPrompt || b.plays > maxChunks*playsOfChunk || len(b.numbers) != len(b.hashes) {
					t.Fatalf("%d chunks, %d prompts, %d plays", len(b.hashes), len(b.list), b.plays)
				}
			}
		})
	}
}

// TestRoom: a sample has room for so many chunks.
func TestRoom(t *testing.T) {
	b := newBook(4 * 4096)
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

// TestSessionsWithinSpaces: a model whose sessions are few, and one that comes when the
// sample has been halved, is in it with about the same share of its sessions as the others,
// though all sessions of a model begin with its system prompt.
func TestSessionsWithinSpaces(t *testing.T) {
	const models, each, turns = 24, 12, 4
	b := newBook(1 << 13)
	for model := range uint64(models) {
		for id := range uint64(each) {
			for turn := range turns {
				offerOf(b, model+1, session(1000+model, 0, 10), session(10_000+100*model+id, 0, 30+20*turn), huge)
			}
		}
	}
	var s Sample
	b.fill(&s)
	if s.Shift < 2 {
		t.Fatalf("shift %d: the sample was hardly halved", s.Shift)
	}
	prompts := make(map[uint64]int)
	for _, p := range s.Prompts {
		first := p.Last
		for s.Parents[first-1] != 0 {
			first = s.Parents[first-1]
		}
		prompts[b.hashes[first-1]]++
	}
	want := each * turns >> s.Shift
	t.Logf("one in %d sessions, of each model about %d prompts: %v", 1<<s.Shift, want, slices.Sorted(maps.Values(prompts)))
	expected := models * (1 - math.Pow(1-math.Exp2(-float64(s.Shift)), each))
	if float64(len(prompts)) < 0.75*expected {
		t.Errorf("%d of %d models are in the sample, want about %.0f", len(prompts), models, expected)
	}
	for _, n := range prompts {
		if n > 4*want+turns {
			t.Errorf("%d prompts of a model are in the sample, want about %d", n, want)
		}
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
	var s Sample
	b.fill(&s)
	if len(s.Parents) != 8 || len(s.Prompts) != 2 {
		t.Fatalf("%+v", s)
	}
	if p := s.Prompts; p[0].Last != 7 || p[0].Tokens != 1024 || p[1].Last != 8 || p[1].Skip != 256 || p[1].Tokens != 2048 {
		t.Errorf("%+v", p)
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
