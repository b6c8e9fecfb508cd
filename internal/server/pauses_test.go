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

// TestPausesAreBounded: conversations that rest take no more than the room for them, and
// give it back when they had their turn, or nothing is promoted any more.
func TestPausesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPauses(nil)
		p.turn <- struct{}{} // another is at work
		r := rand.New(rand.NewPCG(20, 1))
		for range 300_000 {
			p.add(resting(1), time.Duration(1+r.IntN(3600))*time.Second)
		}
		if n, one := p.bytes.Load(), pausedBytes(resting(1)); n > maxPausesBytes || n+one <= maxPausesBytes {
			t.Errorf("%d bytes of %d", n, maxPausesBytes)
		}
		had := p.bytes.Load()
		time.Sleep(time.Hour)
		if n := p.bytes.Load(); n != had {
			t.Errorf("%d bytes are left of %d, and none had its turn", n, had)
		}
		synctest.Wait()
		p.cancel()
		synctest.Wait()
		if n := p.bytes.Load(); n != 0 {
			t.Errorf("%d bytes are left", n)
		}
	})
}
