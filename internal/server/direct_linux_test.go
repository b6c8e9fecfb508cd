package server_test

import (
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/server"
)

// An abort, other than an expiry, is the client's word that it writes no more.
func TestDirectAbort(t *testing.T) {
	r := newRig(t, options{Options: server.Options{Direct: true, Settings: server.Settings{LeaseMaxAge: 6 * time.Second}}})
	c := r.dial(client.Options{Direct: true})
	f, err := c.Reserve(t.Context(), client.Chain(chain(1, 4)), client.ReserveOptions{Size: size})
	r.must(err)
	r.must(f.Abort(t.Context()))
	if r.arena.Stats().Blocks != 0 || r.quarantine.Stats().Blocks != 0 {
		t.Errorf("arena %+v, quarantine %+v", r.arena.Stats(), r.quarantine.Stats())
	}
}

func TestDirectExpiry(t *testing.T) {
	r := newRig(t, options{Options: server.Options{Direct: true, Settings: server.Settings{LeaseMaxAge: 30 * time.Millisecond}}})
	c := r.dial(client.Options{Direct: true})
	_, err := c.Reserve(t.Context(), client.Chain(chain(1, 4)), client.ReserveOptions{Size: size})
	r.must(err)
	r.until("the fill is in quarantine", func() bool { return r.quarantine.Stats().Blocks == 4 })
	r.until("and charged", func() bool { return r.leased() == 4*size })
}
