package client

import (
	"context"
	"testing"

	"github.com/kvstored/kvstored/internal/wire"
)

// BenchmarkPing is an empty round trip through everything this package adds.
// BenchmarkRoundTrip of internal/wire has the floor.
func BenchmarkPing(b *testing.B) {
	c := mustDial(b, inlineSetup(), func(f *fake) {
		conn, err := wire.NewConn(f.nc)
		if err != nil {
			b.Error(err)
			return
		}
		var out []byte
		for {
			h, _, err := conn.ReadFrame()
			if err != nil {
				return
			}
			out = wire.Header{Kind: wire.KindReply, Op: h.Op, ID: h.ID}.Append(out[:0])
			conn.Write(out)
		}
	})
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Ping(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
