package daemon_test

import (
	"strings"
	"testing"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
)

// TestLife: a daemon starts, is asked, stops, is started again with another
// configuration, and is killed; one that cannot start says why.
func TestLife(t *testing.T) {
	d := daemon.Start(t)
	if st := d.Stats(); st.Store.Tiers["cpu"].CapacityBytes != 64<<20 || st.Store.Tiers["disk"].Off {
		t.Errorf("%+v", st.Store.Tiers)
	}
	d.Dial(client.Options{})
	d.Stop()
	d.Configure(func(c *config.Config) { c.CPU.Capacity = 32 << 20 })
	d.Start()
	if st := d.Stats(); st.Store.Tiers["cpu"].CapacityBytes != 32<<20 {
		t.Errorf("%+v", st.Store.Tiers)
	}
	d.Kill()
	if d.Running() || d.Process() != nil {
		t.Error("it runs after a kill")
	}
	d.Launch("--nonsense")
	if err := d.Wait(); err == nil || !strings.Contains(d.Said(), "--nonsense") {
		t.Errorf("a flag that is not there: %v, %s", err, d.Said())
	}
	if code, out, errs := daemon.Run(t, "", "version"); code != 0 || !strings.HasPrefix(out, "kvstored ") {
		t.Errorf("version: %d, %q, %q", code, out, errs)
	}
}
