package server_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// What requests and connections keep is charged, whatever keeps it: each client
// here costs more than all may, by small frames or by what becomes of a large one.
func TestEverythingIsCharged(t *testing.T) {
	known := chain(1, 8)
	long := chain(1, 4096) // goes on from known
	text := strings.Repeat("x", key.MaxTextBytes)
	name := strings.Repeat("x", 1000)
	for _, c := range []struct {
		name    string
		limit   int64
		clients int
		ask     func(c *raw, i int) (wire.Op, wire.Message)
		asks    int // of one client
	}{
		{"open spaces", 8 * mib, 8, func(_ *raw, i int) (wire.Op, wire.Message) {
			sp := space
			sp.Model = fmt.Sprintf("%04d%s", i, text[4:])
			return wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: sp}
		}, 1000},
		{"names of prefetches that pin", 2 * mib, 4, func(c *raw, i int) (wire.Op, wire.Message) {
			return wire.OpPrefetch, &wire.PrefetchRequest{Chain: c.chain(known), Flags: wire.PrefetchPin, LookupID: fmt.Sprint(i, name)}
		}, 1000},
		{"a long lookup", 8 * mib, 1, func(c *raw, _ int) (wire.Op, wire.Message) {
			return wire.OpLookup, &wire.LookupRequest{Chain: c.chain(chain(9, 150_000))}
		}, 1},
		{"a long deletion", 16 * mib, 1, func(c *raw, _ int) (wire.Op, wire.Message) {
			return wire.OpDelete, &wire.DeleteRequest{Chain: c.chain(chain(9, 200_000))}
		}, 1},
		{"gets that wait", 16 * mib, 1, func(c *raw, _ int) (wire.Op, wire.Message) {
			return wire.OpGet, &wire.GetRequest{Chain: c.chain(long), Deadline: wire.Deadline{Given: true, Millis: 1 << 30}}
		}, 120},
		{"warms", 16 * mib, 1, func(c *raw, _ int) (wire.Op, wire.Message) {
			return wire.OpWarm, &wire.WarmRequest{Chain: c.chain(long)}
		}, 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hook, open := gate()
				b := budget.New(budget.Options{Bytes: c.limit})
				r := newRig(t, options{hook: hook, Options: server.Options{Memory: b}})
				r.onDisk(known, 4, 8)
				r.store(known, 0, 4)
				quiet := r.greet(0)
				quiet.ping()
				for range c.clients {
					cl := r.greet(0)
					go func() { // it reads
						for err := error(nil); err == nil; {
							_, _, err = cl.conn.ReadFrame()
						}
					}()
					var frames []byte
					for i := range c.asks {
						op, m := c.ask(cl, i)
						frames = wire.AppendRequest(frames, op, uint64(i+2), m)
					}
					_, _ = cl.conn.Write(frames) // it may be closed already
				}
				r.until("a client loses its connection for its memory", func() bool {
					return b.Stats().Closed["native"]["memory"]+b.Stats().Closed["native"]["uid_memory"] > 0
				})
				quiet.ping()
				close(open)
				r.stop()
				if st := b.Stats(); st.UsedBytes != st.SocketBytes {
					t.Errorf("%d bytes are charged for nothing", st.UsedBytes-st.SocketBytes)
				}
			})
		})
	}
}
