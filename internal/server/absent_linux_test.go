package server_test

import (
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
)

// TestOtherSpacesAreSecret: that a prompt is stored for another model is told to clients that
// may read there, and to others it was never stored.
func TestOtherSpacesAreSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{lone: true, Options: server.Options{Settings: server.Settings{
			Access: accepted(t, "[{uids: [12001], match: 'a/*', rights: [read, write]}, {uids: [12002], match: '*', rights: [read, write]}]"),
		}}})
		here, there := modelSpace("a/1"), modelSpace("b/1")
		owner, err := r.dialAs(bob, client.Options{Space: &there})
		r.must(err)
		defer owner.Close()
		_, err = owner.Put(t.Context(), client.Chain(chainIn(there, 7, 2)), 0, [][]byte{make([]byte, size), make([]byte, size)})
		r.must(err)
		for _, tc := range []struct {
			uid  uint32
			want wire.Code
		}{{alice, wire.CodeNeverStored}, {bob, wire.CodeOtherSpace}} {
			c, err := r.dialAs(tc.uid, client.Options{Space: &here})
			r.must(err)
			m, err := c.LookupWith(t.Context(), client.Chain(chainIn(here, 7, 2)), client.LookupOptions{Why: true})
			if err != nil || m.Missing == nil || m.Missing.Code != tc.want {
				t.Errorf("user %d is told %+v, %v; want %v", tc.uid, m.Missing, err, tc.want)
			}
			r.must(c.Close())
		}
	})
}
