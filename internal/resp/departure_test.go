package resp_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/tier/tierfault"
)

// A command of many names ends when its client leaves, and when the server stops;
// so do the commands sent behind it.
func TestLongCommandEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const names, long = 500, 10 * time.Second // of a deletion on disk
		for what, end := range map[string]func(*rig, *conn){
			"departure": func(_ *rig, c *conn) { _ = c.Close() },
			"stop":      func(r *rig, _ *conn) { r.stop() },
		} {
			for _, command := range []string{"DEL", "EXEC"} {
				r := newRig(t, resp.Options{})
				c := r.dial(r.unix)
				del, set := []string{"DEL"}, []string{"MSET"}
				for i := range names {
					del, set = append(del, fmt.Sprint(i)), append(set, fmt.Sprint(i), "x")
				}
				c.do("+OK\r\n", set...)
				r.store.Flush()
				var deleted atomic.Int64
				r.store.Fault(func(call tierfault.Call) tierfault.Fault {
					if call.Op == tierfault.Delete {
						deleted.Add(1)
						time.Sleep(long)
					}
					return tierfault.Fault{}
				})
				if command == "EXEC" {
					c.do("+OK\r\n", "MULTI")
					for _, name := range del[1:] {
						c.do("+QUEUED\r\n", "DEL", name)
					}
					del = []string{"EXEC"}
				}
				c.send(append(encode(del...), encode("DEL", "none")...))
				synctest.Wait()
				begun, under := time.Now(), deleted.Load()
				end(r, c)
				time.Sleep(time.Until(begun.Add(long)))
				synctest.Wait()
				if n := r.server.Stats().Connections; n > 0 {
					t.Fatalf("%s, %s: the connection goes on", what, command)
				}
				if n := deleted.Load(); n > under+1 { // one that is owed
					t.Errorf("%s, %s: %d of %d names were deleted", what, command, n, names)
				}
				r.store.Fault(nil)
			}
		}
	})
}
