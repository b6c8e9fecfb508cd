package server

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/key"
)

// resting is a prompt of n chunks.
func resting(n int) []key.Chain {
	return []key.Chain{{Hashes: make([]key.Hash, n), Tokens: make([]uint32, n)}}
}

// TestOneUserPauses: a user with very many conversations that rest takes no more than
// half of the room for them, and each further user has half of the rest.
func TestOneUserPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pauses{wake: make(chan struct{}, 1)}
		later := time.Now().Add(time.Hour)
		chains := resting(1)
		for range 300_000 {
			p.add(1, chains, later)
		}
		if n := p.mu.users[1]; n > maxPausesBytes/2 || n < maxPausesBytes/4 || p.mu.over == 0 {
			t.Fatalf("one user has %d bytes of %d; %d prompts found no room", n, maxPausesBytes, p.mu.over)
		}
		for uid := uint32(2); uid < 8; uid++ {
			over := p.mu.over
			if p.add(uid, resting(1000), later); p.mu.over != over {
				t.Errorf("user %d has no room", uid)
			}
			for range 100_000 {
				p.add(uid, chains, later)
			}
		}
		if p.mu.bytes > maxPausesBytes {
			t.Errorf("%d bytes of %d", p.mu.bytes, maxPausesBytes)
		}
	})
}

// TestPauses: prompts come out in the order of their times, never before, and their
// room is given back to whose it was.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pauses{wake: make(chan struct{}, 1)}
		r := rand.New(rand.NewPCG(20, 1))
		in, out := 0, 0
		for range 20_000 {
			if r.IntN(3) > 0 {
				over := p.mu.over
				p.add(uint32(r.IntN(5)), resting(1+r.IntN(500)), time.Now().Add(time.Duration(r.IntN(100))*time.Second))
				in += 1 - int(p.mu.over-over)
			}
			time.Sleep(time.Duration(r.IntN(2)) * time.Second)
			for {
				d, ok, next := p.take()
				if !ok {
					if next <= 0 {
						t.Fatalf("nothing is due, and the next is in %v", next)
					}
					break
				}
				if out++; d.at.After(time.Now()) {
					t.Fatalf("a prompt comes %v early", time.Until(d.at))
				}
			}
			sum := 0
			for uid, n := range p.mu.users {
				if sum += n; n <= 0 {
					t.Fatalf("user %d has %d bytes", uid, n)
				}
			}
			if sum != p.mu.bytes || in-out != len(p.mu.due) {
				t.Fatalf("%d bytes, of users %d; %d prompts, %d came and %d went", p.mu.bytes, sum, len(p.mu.due), in, out)
			}
		}
		if time.Sleep(time.Hour); in == 0 || out == 0 {
			t.Fatal("nothing happened")
		}
	})
}
