package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/daemon"
	"github.com/kvstored/kvstored/internal/s3test"
)

// stopSlack is what a loaded machine may add to the end of a daemon.
const stopSlack = 15 * time.Second

// stopFlush is the stop.flush of daemons that are ended here.
const stopFlush = 500 * time.Millisecond

// terminate sends SIGTERM and wants the daemon's end within the promised time,
// with everything closed where it is to be clean.
func terminate(t *testing.T, d *demoDaemon, flush time.Duration, clean bool) {
	t.Helper()
	begun := time.Now()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	limit := daemon.EndTimeout + flush + stopSlack
	select {
	case err := <-d.ended:
		d.cmd = nil
		t.Logf("it ended after %v: %v", time.Since(begun).Round(time.Millisecond), err)
		if clean && err != nil {
			log, _ := os.ReadFile(d.log)
			t.Errorf("it was not closed: %v\n%s", err, log[max(0, len(log)-4<<10):])
		}
	case <-time.After(limit):
		_ = d.cmd.Process.Signal(syscall.SIGQUIT) // its log says where it hangs
		<-d.ended
		d.cmd = nil
		log, _ := os.ReadFile(d.log)
		t.Fatalf("it did not end within %v:\n%s", limit, log[max(0, len(log)-16<<10):])
	}
}

// children are the processes that a process has started.
func children(t *testing.T, pid int) (pids []int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // of a thread that has ended
		}
		for _, word := range strings.Fields(string(text)) {
			var child int
			if _, err := fmt.Sscan(word, &child); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, child)
		}
	}
	return pids
}

// A device, a database or a bucket that hangs does not keep the daemon from
// ending in time, nor do clients that wait for them. Unwritten chunks are
// reported, and written ones are found again.
func TestStopWhileBelowHangs(t *testing.T) {
	s3 := s3test.Run(t)
	for _, what := range []string{"database", "bucket"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			quick := func(c *config.Config) { c.Stop.Flush = stopFlush }
			var d *demoDaemon
			var proxy *s3test.Proxy
			if what == "bucket" {
				proxy = s3test.RunProxy(t, s3)
				d = sharing(t, remoteDaemon(t, proxy.Endpoint, quick))
			} else {
				d = startDaemonWith(t, quick)
			}
			defer d.kill()
			c, err := client.Dial(t.Context(), d.socket, client.Options{Space: &crashSpace})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			store := func(number uint64) {
				t.Helper()
				if err := storeChain(t.Context(), c, chainOf(t, crashSpace, number, 4)); err != nil {
					t.Fatal(err)
				}
			}
			store(1)
			flush(t, d.socket)
			if what == "bucket" {
				proxy.Set(func(*http.Request) s3test.Fault { return s3test.Fault{Delay: time.Minute} })
			} else {
				pids := children(t, d.cmd.Process.Pid)
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
			terminate(t, d, stopFlush, false)
			waiting.Wait()
			log, err := os.ReadFile(d.log)
			// The other line is of a flush that did not end in its time: of a machine that did not run it, too.
			if err != nil || !strings.Contains(string(log), "not everything was written") && !strings.Contains(string(log), "what it has not written is missed") {
				t.Errorf("it does not say what it left: %s, %v", log, err)
			}
			if what == "database" {
				if st, err := d.start(t.Context()); err != nil || st.Store.Tiers["disk"].Entries == 0 {
					t.Errorf("what was written before is not there: %v", err)
				}
			}
		})
	}
}
