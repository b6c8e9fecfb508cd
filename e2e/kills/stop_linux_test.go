package kills

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/internal/test/s3test"
)

const (
	stopFlush = 500 * time.Millisecond // the stop.flush of daemons that are ended here
	// stopMost is how long their end may take: five seconds are promised beside the flush,
	// and a loaded machine may add some.
	stopMost = stopFlush + 20*time.Second
)

// A device, a database or a bucket that hangs does not keep the daemon from
// ending in time, nor do clients that wait for them. Unwritten chunks are
// reported, and written ones are found again.
func TestStopWhileBelowHangs(t *testing.T) {
	s3 := s3test.Run(t)
	for _, what := range []string{"database", "bucket"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			quick := func(c *config.Config) { c.Stop.Flush = stopFlush }
			var proxy *s3test.Proxy
			d := daemon.Folder(t, quick)
			if what == "bucket" {
				proxy = s3test.RunProxy(t, s3)
				d.Configure(func(c *config.Config) {
					c.Remote.S3.Bucket, c.Remote.S3.Endpoint, c.Remote.S3.PathStyle = s3test.Bucket, proxy.Endpoint, true
				})
			}
			d.Start()
			for what == "bucket" && d.Stats().Store.Tiers["remote"].Off { // it is tried every 30 s at least
				time.Sleep(10 * time.Millisecond)
			}
			c, err := client.Dial(t.Context(), d.Socket, client.Options{Space: &load.Space})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			store := func(number uint64) {
				t.Helper()
				if err := load.Put(t.Context(), c, load.Chain(t, load.Space, number, 4)); err != nil {
					t.Fatal(err)
				}
			}
			store(1)
			d.Flush()
			if what == "bucket" {
				proxy.Set(func(*http.Request) s3test.Fault { return s3test.Fault{Delay: time.Minute} })
			} else {
				pids := d.Children()
				if len(pids) != 1 {
					t.Fatalf("processes %v: want one database", pids)
				}
				if err := syscall.Kill(pids[0], syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			store(2)
			var waiting sync.WaitGroup
			waiting.Go(func() { _, _ = c.Flush(context.WithoutCancel(t.Context()), true) }) // fails as it should
			_ = d.StopWithin(stopMost)                                                      // not all is closed
			waiting.Wait()
			// The other line is of a flush that did not end in its time: of a machine that did not run it, too.
			if log := d.Said(); !strings.Contains(log, "not everything") && !strings.Contains(log, "what it has not written is missed") {
				t.Error("it does not say what it left")
			}
			if what == "database" {
				if st := d.Start(); st.Store.Tiers["disk"].Entries == 0 {
					t.Error("what was written before is not there")
				}
			}
		})
	}
}
