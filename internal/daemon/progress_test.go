package daemon

import (
	"testing"
	"time"
)

// TestFar: a rate is that of the work itself, not of the daemon's life, nor of what was there
// before; work that ended and begins anew has a rate of its own.
func TestFar(t *testing.T) {
	var p pace
	start := time.Unix(1000, 0)
	for _, tc := range []struct {
		at          time.Duration
		done, total int64
		want        string
	}{
		{0, 1 << 30, 3 << 30, "1.0 GiB of 3.0 GiB"},
		{10 * time.Second, 2 << 30, 3 << 30, "2.0 GiB of 3.0 GiB, 102 MiB/s, 10.0 s left"},
		{20 * time.Second, 3 << 30, 3 << 30, "3.0 GiB of 3.0 GiB, 102 MiB/s, 0 ms left"},
		{time.Hour, 0, 0, "0 B of 0 B"},
		{50 * time.Hour, 0, 2 << 30, "0 B of 2.0 GiB"},
		{50*time.Hour + 10*time.Second, 1 << 30, 2 << 30, "1.0 GiB of 2.0 GiB, 102 MiB/s, 10.0 s left"},
		{50*time.Hour + 11*time.Second, 0, 2 << 30, "0 B of 2.0 GiB"},
		{50*time.Hour + 21*time.Second, 1 << 30, 2 << 30, "1.0 GiB of 2.0 GiB, 102 MiB/s, 10.0 s left"},
	} {
		if got := p.far(tc.done, tc.total, start.Add(tc.at)); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.at, got, tc.want)
		}
	}
}
