package server_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// hybridChats is conversations of a hybrid model that go on in any order, in DRAM that is
// too small for all.
type hybridChats struct {
	*rig
	client *client.Client
	groups []client.Group
	spaces []key.Space
}

func newHybridChats(r *rig) *hybridChats {
	h := &hybridChats{rig: r}
	for g, group := range hybridKinds {
		s := space
		s.ChunkTokens, s.Group = 512, string("fws"[g])
		if h.client == nil {
			h.client = r.dial(client.Options{Space: &s})
		}
		handle, err := h.client.OpenSpace(r.t.Context(), s)
		r.must(err)
		group.Space, group.Tokens = handle, group.Tokens*512/tokens
		h.groups, h.spaces = append(h.groups, group), append(h.spaces, s)
	}
	return h
}

// turn asks for a prompt, stores what of it is worth storing, and returns the chunks that
// were usable.
func (h *hybridChats) turn(seed uint64, n int, looks bool) int {
	h.t.Helper()
	c, ctx := chainIn(h.spaces[0], seed, n), h.t.Context()
	c.Tokens = slices.Repeat([]uint32{512}, n)
	prompt, usable := client.Chain(c), 0
	if looks {
		synctest.Wait() // what goes down to the low watermark has gone
		found, err := h.client.LookupWith(ctx, prompt, client.LookupOptions{Groups: h.groups, Why: true})
		h.must(err)
		usable = int(found.Grouped.Tokens) / 512
	}
	j, err := h.client.Prefetch(ctx, prompt, client.PrefetchOptions{Groups: h.groups})
	h.must(err)
	if found := int(j.Match().Total.Chunks); looks && found != usable {
		h.t.Fatalf("%d chunks are usable for a prefetch, %d for a lookup", found, usable)
	} else {
		usable = found
	}
	f, err := h.client.Reserve(ctx, prompt, client.ReserveOptions{Groups: h.groups, Size: 4 * kib})
	h.must(err)
	for i := range f.Len() {
		if f.Status(i) == client.Granted {
			clear(f.Bytes(i))
		}
	}
	_, err = f.Commit(ctx)
	h.must(err)
	h.must(j.Release(ctx))
	return usable
}

// play is how many chunks were usable of conversations that go on at random, beside prompts
// that come once.
func (h *hybridChats) play() (hit int) {
	rng := rand.New(rand.NewPCG(1, 2))
	chats, next := make([][2]uint64, 16), uint64(1)
	for turn := range 400 {
		h.turn(1_000_000+uint64(turn), 6, false)
		chat := &chats[rng.IntN(len(chats))]
		if chat[1] += 1 + rng.Uint64N(2); chat[0] == 0 || chat[1] > 12 {
			*chat = [2]uint64{next, 2}
			next++
		}
		hit += h.turn(chat[0], int(chat[1]), turn%2 == 0)
	}
	return hit
}

// TestTenureOfGroups: a policy that is told of whole prompts hears of their windows and states
// too, which it would let go first otherwise, and each usable length with them.
func TestTenureOfGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hits := map[string]int{}
		for _, name := range []string{"lru", "tenure"} {
			r := newRig(t, options{lone: true, capacity: 768 * kib})
			r.must(r.tiers.Operator.SetPolicy(tier.CPU, name))
			hits[name] = newHybridChats(r).play()
		}
		t.Log(hits)
		if hits["tenure"] < hits["lru"] {
			t.Errorf("%v chunks were usable", hits)
		}
	})
}
