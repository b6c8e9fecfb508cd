package server_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// learning is a rig whose only tier evicts by tenure.
func learning(t *testing.T) *rig {
	r := newRig(t, options{lone: true})
	r.must(r.tiers.Operator.SetPolicy(tier.CPU, "tenure"))
	return r
}

// reuses is how many the policy of DRAM has seen. For each class its saved tables
// have the hits by age, and behind them the chunks that left without one.
func (r *rig) reuses() int {
	r.t.Helper()
	data, err := r.hot.Ledger().Planning().Save()
	r.must(err)
	const bins, head = 26, 9
	sum := 0.0
	for at := head; at+16*bins < len(data); at += 16 * bins {
		for b := range bins {
			sum += math.Float64frombits(binary.LittleEndian.Uint64(data[at+8*b:]))
		}
	}
	return int(sum)
}

// ask makes a prefetch and ends it.
func (r *rig) ask(c *client.Client, ch *key.Chain, configs map[string]string) client.Match {
	r.t.Helper()
	j, err := c.Prefetch(r.t.Context(), client.Chain(ch), client.PrefetchOptions{Configs: configs})
	r.must(err)
	_, err = j.Wait(r.t.Context(), client.All)
	r.must(err)
	r.must(j.Release(r.t.Context()))
	return j.Match()
}

// TestOneRequestIsOneUse: lookups, and what follows them, are one request.
func TestOneRequestIsOneUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := learning(t)
		c := r.dial(client.Options{})
		ch := chain(1, 4)
		look := func() {
			t.Helper()
			_, err := c.Lookup(t.Context(), client.Chain(ch), 0)
			r.must(err)
		}
		want := func(n int, after string) {
			t.Helper()
			if got := r.reuses(); got != n {
				t.Errorf("after %s: %d reuses, want %d", after, got, n)
			}
		}
		look()
		look()
		r.ask(c, ch, nil)
		r.store(ch, 0, 4) // a fill is no use, nor is what it is published under
		want(0, "the first request")
		r.ask(c, ch, nil)
		want(4, "the second, without a lookup")
		look()
		_, err := c.Get(t.Context(), client.Chain(ch), client.GetOptions{})
		r.must(err)
		want(8, "a lookup and a get")
		r.ask(c, chain(1, 2), nil)
		want(10, "a shorter one")
	})
}

// longSpace has chunks so long that few of them are no small cache.
var longSpace = func() key.Space {
	s := space
	s.ChunkTokens = 1024
	return s
}()

// longChain is a prompt of n chunks in longSpace.
func longChain(seed uint64, n int) *key.Chain {
	c := chainIn(longSpace, seed, n)
	for i := range c.Tokens {
		c.Tokens[i] = uint32(longSpace.ChunkTokens)
	}
	return c
}

// wellUsed fills DRAM with chunks that are asked for again and again, the best there are, and
// returns a client and a prompt that no client has asked for.
func (r *rig) wellUsed() (*client.Client, *key.Chain) {
	r.t.Helper()
	c := r.dial(client.Options{Space: &longSpace})
	old := longChain(1, 243)
	for range 3 {
		r.ask(c, old, nil)
	}
	r.store(old, 0, 243)
	_, err := c.Reserve(r.t.Context(), client.Chain(longChain(1, 1)), client.ReserveOptions{Size: size}) // how large its chunks are
	r.must(err)
	return c, longChain(2, 4)
}

// TestWorthIsTold: a client is told what would be refused, is refused it, and
// may insist.
func TestWorthIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := learning(t)
		c, ch := r.wellUsed()
		if m := r.ask(c, ch, map[string]string{"turn_over": "done"}); m.Worth != 0 {
			t.Errorf("%d chunks are worth storing, want none", m.Worth)
		}
		if m := r.ask(c, longChain(1, 243), nil); m.Worth != 243 {
			t.Errorf("%d of 243 chunks that are there are worth storing", m.Worth)
		}
		if m, err := c.Lookup(t.Context(), client.Chain(ch), 0); err != nil || m.Worth != 0 {
			t.Errorf("a lookup says that %d chunks are worth storing, error %v", m.Worth, err)
		}
		if _, err := c.Reserve(t.Context(), client.Chain(ch), client.ReserveOptions{Size: size}); !errors.Is(err, client.ErrDeclined) {
			t.Errorf("reserve: %v", err)
		}
		in := r.dial(client.Options{Inline: true, Space: &longSpace})
		results, err := in.Put(t.Context(), client.Chain(ch), 0, [][]byte{make([]byte, size), make([]byte, size)})
		r.must(err)
		for i, x := range results {
			if x.Code != client.ResultDeclined {
				t.Errorf("put of chunk %d: %s", i, x.Code)
			}
		}
		r.ask(c, ch, map[string]string{"turn_over": "done", "store": "always"})
		f, err := c.Reserve(t.Context(), client.Chain(ch), client.ReserveOptions{Size: size})
		r.must(err)
		if f.Len() != 4 {
			t.Errorf("%d chunks are granted to a client that forces them, want 4", f.Len())
		}
		r.must(f.Abort(t.Context()))
	})
}

// TestDone: the end of a prompt with the hint "done" goes first.
func TestDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{lone: true})
		c := r.dial(client.Options{})
		r.store(chain(1, 3), 0, 3)
		r.store(chain(2, 3), 0, 3)
		r.ask(c, chain(1, 3), nil)
		r.ask(c, chain(2, 3), map[string]string{"turn_over": "done"})
		r.until("the last in use goes first", func() bool {
			e, ok := r.hot.Ledger().Evict()
			if ok {
				r.hot.Ledger().Free(e.ID)
				r.arena.Block(uint32(e.Value.A), uint32(e.ID)).Release()
			}
			if !ok || e.Key != chain(2, 3).Key(2) {
				t.Fatalf("evicted %v, %v", e.Key, ok)
			}
			return true
		})
	})
}
