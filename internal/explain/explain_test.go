package explain

import (
	"strings"
	"testing"
	"time"
)

// TestExplain: each reason is explained, with tier, policy and time.
func TestExplain(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		a    Absence
		want string
	}{
		{None, ""},
		{Because(NeverStored), "this text is new: it was never stored"},
		{Absence{Reason: Evicted, Tier: 0, Policy: "lru", At: 880, Since: 1 << 30}, "it was evicted from DRAM by lru, 2m0s ago; DRAM has evicted 1.0 GiB since, so about as much more would have kept it"},
		{Absence{Reason: Declined, Tier: 1, Why: QueueFull, At: 1000}, "it was not kept by disk: the writer was behind, 0s ago"},
		{Absence{Reason: TierOff, Tier: 1}, "it may be in disk, which is off (see the log)"},
	} {
		if got := Explain(&c.a, now); got != c.want {
			t.Errorf("%+v: %q, want %q", c.a, got, c.want)
		}
	}
	for r := NeverStored; r < reasons; r++ {
		a := Absence{Reason: r, Tier: noTier}
		if got := Explain(&a, now); got == "" || strings.HasSuffix(got, "it ") {
			t.Errorf("%v is explained as %q", r, got)
		}
	}
}
