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

// TestPausesAreBounded: conversations that rest take no more than the room for them.
func TestPausesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pauses{wake: make(chan struct{}, 1)}
		for range 300_000 {
			p.add(resting(1), time.Now().Add(time.Hour))
		}
		if one := (&due{chains: resting(1)}).bytes(); p.mu.bytes > maxPausesBytes || p.mu.bytes+one <= maxPausesBytes {
			t.Errorf("%d bytes of %d", p.mu.bytes, maxPausesBytes)
		}
	})
}

// TestPauses: prompts come out in the order of their times, never before, and their
// room is given back.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pauses{wake: make(chan struct{}, 1)}
		r := rand.New(rand.NewPCG(20, 1))
		in, out := 0, 0
		for range 20_000 {
			if r.IntN(3) > 0 {
				had := len(p.mu.due)
				p.add(resting(1+r.IntN(500)), time.Now().Add(time.Duration(r.IntN(100))*time.Second))
				in += len(p.mu.due) - had
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
			for i := range p.mu.due {
				sum += p.mu.due[i].bytes()
			}
			if sum != p.mu.bytes || in-out != len(p.mu.due) {
				t.Fatalf("%d bytes, of prompts %d; %d prompts, %d came and %d went", p.mu.bytes, sum, len(p.mu.due), in, out)
			}
		}
		if time.Sleep(time.Hour); in == 0 || out == 0 {
			t.Fatal("nothing happened")
		}
	})
}
