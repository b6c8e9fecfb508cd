package daemon

import (
	"testing"
	"time"
)

// TestFar: work is as far as its bytes, and takes as long as the rate so far says.
func TestFar(t *testing.T) {
	for _, tc := range []struct {
		done, total int64
		took        time.Duration
		want        string
	}{
		{0, 2 << 30, time.Second, "0 B of 2.0 GiB"},
		{1 << 30, 2 << 30, 10 * time.Second, "1.0 GiB of 2.0 GiB, 102 MiB/s, 10.0 s left"},
		{2 << 30, 2 << 30, 10 * time.Second, "2.0 GiB of 2.0 GiB, 205 MiB/s, 0 ms left"},
	} {
		if got := far(tc.done, tc.total, tc.took); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
