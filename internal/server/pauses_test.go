package server

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/key"
)

// resting is a prompt of n chunks.
func resting(n int) []key.Chain {
	return []key.Chain{{Hashes: make([]key.Hash, n), Tokens: make([]uint32, n)}}
}

// TestPausesAreBounded: conversations that rest take no more than the room for them, in which
// many short ones have a place; those whose time has come wait without a goroutine.
func TestPausesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pauses{wake: make(chan struct{}, 1)}
		r := rand.New(rand.NewPCG(20, 1))
		for range 300_000 {
			p.add(resting(1), time.Duration(1+r.IntN(3600))*time.Second)
		}
		if n, one := p.bytes.Load(), pausedBytes(resting(1)); n > maxPausesBytes || n+one <= maxPausesBytes {
			t.Errorf("%d bytes of %d", n, maxPausesBytes)
		}
		had, running := p.bytes.Load(), runtime.NumGoroutine()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := p.bytes.Load(); n != had {
			t.Errorf("%d bytes are left of %d, and none had its turn", n, had)
		}
		if n := runtime.NumGoroutine(); n > running+10 {
			t.Errorf("%d goroutines run for prompts that wait", n-running)
		}
		due := 0
		for p.next() != nil {
			due++
		}
		if due < 20_000 {
			t.Errorf("%d prompts of a chunk rest", due)
		}
	})
}

// TestPausesGiveBack: a prompt gives its room back once it had its turn.
func TestPausesGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newStage(t, &script{at: "dd"})
		p := &g.server.hints.pauses
		ctx, cancel := context.WithCancel(t.Context())
		go p.run(ctx)
		for i := range 3 {
			p.add([]key.Chain{*g.chain}, time.Duration(i/2)*time.Minute) // two at once, and one later
		}
		time.Sleep(2 * time.Minute)
		if n := p.bytes.Load(); n != 0 || g.cached() != "11" {
			t.Errorf("%d bytes are left; %s is in DRAM", n, g.cached())
		}
		cancel()
		synctest.Wait()
		g.strike()
	})
}

// TestPausesEnd: nothing begins to be promoted once the daemon ends.
func TestPausesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pauses{wake: make(chan struct{}, 1)} // without a server: to promote panics
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 {
			p.add(resting(1), 0)
			synctest.Wait()
			p.run(ended)
		}
	})
}

// TestLeadTimeOfGroups: what a prompt takes to load is that of the chunks of all its groups,
// whichever is the first.
func TestLeadTimeOfGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newStage(t, &script{at: "dd"})
		few, many := resting(8)[0], resting(64)[0]
		v := &g.server.hints
		one, other, all := v.leadTime([]key.Chain{few, many}), v.leadTime([]key.Chain{many, few}), v.leadTime(resting(72))
		if one != all || other != all || all == v.leadTime(resting(8)) {
			t.Errorf("%v and %v; want %v, as of one group of as many chunks", one, other, all)
		}
	})
}
