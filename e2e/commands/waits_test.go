package commands_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/internal/admin"
)

// reload changes the configuration of a daemon that runs, and returns when it has taken it.
func reload(t *testing.T, d *daemon.Daemon, change func(*config.Config)) {
	t.Helper()
	reloads := func() admin.Config {
		t.Helper()
		var st struct{ Config admin.Config }
		if err := d.AskInto(t.Context(), &st); err != nil {
			t.Fatal(err)
		}
		return st.Config
	}
	before := reloads()
	d.Configure(change)
	d.Signal(syscall.SIGHUP)
	for {
		if now := reloads(); now.Reloads+now.ReloadsBad > before.Reloads+before.ReloadsBad {
			if !now.LastReloadOK {
				t.Fatal(d.Said())
			}
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestPutWaits: a put waits while others hold the room: here until that is too old.
func TestPutWaits(t *testing.T) {
	d := start(t, func(c *config.Config) { c.Lease.MaxAge = time.Second })
	holder := d.Dial(client.Options{Name: "holder", Space: &handsOn})
	reload(t, d, func(c *config.Config) { c.Lease.MaxAge = 10 * time.Minute }) // of connections from now on
	fill, err := holder.Reserve(t.Context(), client.Tokens(make([]uint32, 500)), client.ReserveOptions{Size: chunkBytes})
	if err != nil || fill.Len() == 500 || fill.Len() < 200 { // all that there is
		t.Fatalf("the holder has room for %d chunks, %v", fill.Len(), err)
	}
	if out := daemon.Must(t, kv(1, 8), prompt("put", 1, 8)...); !strings.HasPrefix(out, "stored 8 of 8 chunks") {
		t.Errorf("put beside a client that holds much: %s", out)
	}
}
