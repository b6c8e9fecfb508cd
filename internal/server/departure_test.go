package server_test

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
)

// What a client has asked for and has not got when it leaves, or when the
// server stops, is not worked on.
func TestUnansweredRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests, long = 2000, 10 * time.Second
		for what, end := range map[string]func(*rig, *raw){
			"departure": func(r *rig, c *raw) {
				_ = c.nc.Close()
				r.after(long, "the connection ends", func() bool { return r.server.Stats().Connections == 0 })
			},
			"stop": func(r *rig, _ *raw) { r.stop() },
		} {
			var done, left atomic.Int64
			r := newRig(t, options{Options: server.Options{Met: func(_ net.Conn, maps bool, _ time.Duration) (func(), bool) {
				return func() { left.Add(1) }, maps
			}, Stats: func(wire.Rights) ([]byte, error) {
				done.Add(1)
				time.Sleep(long)
				return []byte("{}"), nil
			}}})
			c := r.greet(0)
			var all []byte
			for i := range requests {
				all = wire.AppendRequest(all, wire.OpStats, uint64(i+1), wire.EmptyRequest{})
			}
			c.write(all)
			r.until("the first request is answered", func() bool { return done.Load() > 0 })
			begun := time.Now()
			if end(r, c); time.Since(begun) != long {
				t.Errorf("%s: the connection ends after %v, the request under way after %v", what, time.Since(begun), long)
			}
			if n := done.Load(); n > 1 {
				t.Errorf("%s: %d of %d requests were worked on", what, n, requests)
			}
			if gone := what == "departure"; left.Load() != int64(map[bool]int{true: 1}[gone]) {
				t.Errorf("%s: %d clients are said to have left", what, left.Load())
			}
		}
	})
}
