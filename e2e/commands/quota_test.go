package commands_test

import (
	"testing"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
)

// TestSpaceQuota: the spaces under a quota evict their own, in DRAM and on disk, and a
// prompt that is longer than the quota is told why it is cut.
func TestSpaceQuota(t *testing.T) {
	const chunk, quota = 16 << 20, 4 // the least quota there is
	start(t, func(c *config.Config) {
		// Half of the leases are a client's while the one before it is leaving.
		c.CPU.Capacity = 2 * config.Bytes(float64(quota*chunk)/0.4) * 5 / 4
		c.Spaces = []config.Space{{Match: "tenant-*", Quota: quota * chunk}}
	})
	ours, theirs := string(noise(1, 3*chunk)), string(noise(2, 6*chunk))
	daemon.Must(t, ours, prompt("put", 1, 3)...) // under no quota
	for n := range 2 {
		daemon.Must(t, ours, prompt("put", n, 3, "--model", "tenant-a")...)
		daemon.Must(t, "", "flush")
	}
	fails(t, daemon.ExitFailure, "quota", prompt("put", 9, 6, "--model", "tenant-b", write(t, theirs))...)
	daemon.Must(t, "", "flush")
	tiers := tiers(t)
	for at, st := range tiers {
		q := st.Quotas[0]
		if q.UsedBytes > quota*chunk || q.Evictions == 0 || q.Evictions != st.Evictions {
			t.Errorf("%s: %+v, %d evictions in all", at, q, st.Evictions)
		}
	}
	if q := tiers["cpu"].Quotas[0]; q.Refused == 0 {
		t.Errorf("nothing was refused: %+v", q)
	}
	if got := daemon.Must(t, "", prompt("get", 1, 3)...); got != ours {
		t.Errorf("of the other space %d bytes are left", len(got))
	}
	if got := daemon.Must(t, "", prompt("get", 9, 6, "--model", "tenant-b")...); got != theirs[:quota*chunk] {
		t.Errorf("of the long prompt %d bytes are there", len(got))
	}
}
