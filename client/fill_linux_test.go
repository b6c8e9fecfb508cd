package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/wire"
)

// The fill of a reservation whose caller has left is given back. Where nothing was granted
// there is none.
func TestAbandonedFill(t *testing.T) {
	for name, fill := range map[string]uint64{"granted": 7, "exists": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := make(chan struct{})
				c := windowed(t, func(f *fake, _ *arena.Window) {
					r := f.reserved()
					close(asked)
					cancel := f.expect(wire.OpCancel, new(wire.IDRequest))
					if fill == 0 {
						f.reply(r, &wire.ReserveReply{Slots: wire.Slots(nil).Add(wire.Slot{Code: Exists})})
					} else {
						f.grant(r, fill, 0, 64, 1)
					}
					f.reply(cancel, &wire.CodeReply{Code: wire.CodeNotFound})
					f.reply(f.expect(wire.OpPing, wire.EmptyRequest{}), wire.EmptyReply{})
					if fill != 0 {
						f.aborted(fill, 0, 0) // all
					}
					f.reply(f.expect(wire.OpPing, wire.EmptyRequest{}), wire.EmptyReply{})
				})
				ctx, cancel := context.WithCancel(testContext(t))
				go func() {
					<-asked
					cancel()
				}()
				if _, err := c.Reserve(ctx, Tokens(make([]uint32, 4)), ReserveOptions{Size: 64}); !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				for range 2 {
					if err := c.Ping(testContext(t)); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}
