package main

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

var rude = flag.Duration("rude", 0, "how long TestRude mixes attackers with clients that behave; 20m for a long run")

const (
	rudeAtOnce = 3 // attacks
	rudeTurn   = 10 * time.Second
	rudeTurns  = 3 // between two looks
	// rudeChunks is limits.chunks: the books of stored chunks, 320 bytes each,
	// stays as they do, and is to be small beside anonSlack.
	rudeChunks = 20_000
)

// Attacks of all kinds at once, again and again, beside clients that compare
// every byte: memory, descriptors and goroutines do not grow from look to look.
func TestRude(t *testing.T) {
	if *rude == 0 {
		t.Skip("-rude says for how long")
	}
	s := scaleOf(t)
	p := newPrey(t, rudeChunks)
	witnesses := []*witness{newWitness(t, p), newWitness(t, p)}
	if err := witnesses[0].round(t.Context()); err != nil {
		t.Fatal(err)
	}
	flush(t, p.d.socket)
	before, err := p.footprint()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("at first %v", before)
	for begun := time.Now(); time.Since(begun) < *rude && !t.Failed(); {
		ctx, over := context.WithTimeout(t.Context(), rudeTurns*rudeTurn)
		var working sync.WaitGroup
		for _, w := range witnesses {
			working.Go(func() { w.run(ctx) })
		}
		for range rudeTurns {
			p.mixed(t, s, witnesses[0], rand.Perm(len(attacks))[:rudeAtOnce])
		}
		over()
		working.Wait()
		rested := time.Now()
		after := p.rests(before)
		t.Logf("%4.0f s: %v, %.1f s after the attackers left; clients that behave: %d and %d rounds, %d and %d errors", time.Since(begun).Seconds(), after,
			time.Since(rested).Seconds(), witnesses[0].rounds, witnesses[1].rounds, witnesses[0].errs, witnesses[1].errs)
	}
	if witnesses[0].rounds == 0 || witnesses[1].rounds == 0 {
		t.Error("clients that behave were not served")
	}
	terminate(t, p.d, stopFlush, true)
}

// mixed runs some attacks at once for a turn.
func (p *prey) mixed(t *testing.T, s scale, w *witness, which []int) {
	t.Helper()
	var all sync.WaitGroup
	for _, i := range which {
		all.Go(func() {
			p.under(t, i, s, w.chains[0], func(*attackers) { time.Sleep(rudeTurn) })
		})
	}
	all.Wait()
	p.lives()
}
