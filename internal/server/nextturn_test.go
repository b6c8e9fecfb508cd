package server_test

import (
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// grow stores a prompt of which the first half is on disk only, as an engine
// does that computed it again: with reserve and commit, or over the socket.
func (r *rig) grow(c *client.Client, inline bool) {
	r.t.Helper()
	p := chain(1, 8)
	r.onDisk(p, 0, 4)
	if inline {
		var payloads [][]byte
		for i := 4; i < 8; i++ {
			payloads = append(payloads, tiertest.Payload(p.Key(i), size))
		}
		_, err := c.Put(r.t.Context(), client.Chain(p), 4, payloads)
		r.must(err)
		return
	}
	r.must(put(r.t.Context(), c, p, 4, 8))
}

// The chunks of a prompt that has grown come up for its next turn, as far as they
// were not in DRAM.
func TestNextTurn(t *testing.T) {
	for name, inline := range map[string]bool{"commit": false, "put": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, options{Options: server.Options{Settings: server.Settings{Prefetch: server.Prefetch{NextTurnBytes: mib}}}})
				c := r.dial(client.Options{})
				r.grow(c, inline)
				r.until("it is in DRAM", func() bool { return r.server.Stats().NextTurnChunks == 4 })
				j, err := c.Prefetch(t.Context(), client.Chain(chain(1, 8)), client.PrefetchOptions{})
				r.must(err)
				if n, _ := j.Ready(); n != 8 {
					t.Errorf("%d chunks are ready at once", n)
				}
				r.must(j.Release(t.Context()))
				if s := r.server.Stats(); s.NextTurnBytes != 4*size || s.WarmChunks != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// It is bounded by bytes, and off unless it is asked for.
func TestNextTurnIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, most := range []int64{0, 2 * size} {
			r := newRig(t, options{Options: server.Options{Settings: server.Settings{Prefetch: server.Prefetch{NextTurnBytes: most}}}})
			c := r.dial(client.Options{})
			r.grow(c, false)
			r.until("what may come up has", func() bool { return int64(r.server.Stats().NextTurnBytes) >= most })
			r.stop()
			if n := int64(r.server.Stats().NextTurnBytes); n > most+4*size { // the first four tell how large chunks are
				t.Errorf("%d bytes came up of at most %d", n, most)
			} else if most == 0 && n > 0 {
				t.Errorf("%d bytes came up unasked", n)
			}
		}
	})
}
