package server_test

import (
	"testing"

	"github.com/kvstored/kvstored/internal/wire"
)

// To receive a large request takes places as well, not only to work on it.
func TestLargeRequestsTakePlaces(t *testing.T) {
	r := newRig(t, options{sockets: true}) // turns are counted in the time of the processor
	entries := r.server.CountEntries()
	c := r.greet(0)
	const body = 48 << 20
	c.write(wire.Header{BodyBytes: body, Op: wire.OpLookup, ID: 2}.Append(nil))
	for range body/mib - 1 { // the request is never whole
		c.write(make([]byte, mib))
	}
	r.until("it has taken places", func() bool { return entries.Load() > 0 })
}
