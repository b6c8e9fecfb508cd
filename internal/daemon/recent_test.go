package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/tier"
)

// TestRecent: what is recent is of the last ten minutes, and of the time since the start
// before that; looks that follow soon do not push older ones out.
func TestRecent(t *testing.T) {
	var r recent
	start := time.Unix(1000, 0)
	look := func(seconds int, asked uint64) Recent {
		m := moment{at: start.Add(time.Duration(seconds) * time.Second)}
		m.sum.AskedTokens, m.sum.HitTokens = asked, asked/2
		m.reads = make([]uint64, len(tierSeconds.buckets)+1)
		for i := 3; i < len(m.reads); i++ { // all between the bounds 2 and 3
			m.reads[i] = asked
		}
		return r.since(m)
	}
	for second := range 3600 {
		got, since := look(second, uint64(second)), min(second, 600)
		if d := got.Seconds - float64(since); d < 0 || d >= recentSpan.Seconds()/recentSteps || got.AskedTokens != uint64(got.Seconds) {
			t.Fatalf("after %d s: %+v", second, got)
		}
		if low, high := tierSeconds.buckets[2], tierSeconds.buckets[3]; second > 0 && (got.Reads.Count != got.AskedTokens || got.Reads.P50 < low || got.Reads.P99 > high) {
			t.Fatalf("after %d s reads take %+v, between %v and %v", second, got.Reads, low, high)
		}
	}
}

// TestQuantile: a quantile is in the bucket of the observation that it is.
func TestQuantile(t *testing.T) {
	bounds := []float64{1, 2, 4}
	for _, tc := range []struct {
		q      float64
		counts []uint64
		want   float64
	}{
		{0.5, []uint64{0, 0, 0, 0}, 0},
		{0.5, []uint64{1, 1, 1, 1}, 0.5},
		{0.5, []uint64{49, 99, 100, 100}, 1.5},
		{0.99, []uint64{49, 99, 100, 100}, 1.5},
		{0.999, []uint64{49, 99, 100, 100}, 3},
		{0.99, []uint64{0, 0, 0, 5}, 4}, // above all bounds
	} {
		if got := quantile(tc.q, bounds, tc.counts); got != tc.want {
			t.Errorf("%v of %v: %v, want %v", tc.q, tc.counts, got, tc.want)
		}
	}
}

// TestBottleneck: the disk is called too slow where it is, and nowhere else.
func TestBottleneck(t *testing.T) {
	slow := Times{Count: 40, P50: 0.3, P99: 2}
	for _, tc := range []struct {
		name string
		r    Recent
		want string
	}{
		{"nothing was done", Recent{}, ""},
		{"all is in time", Recent{Seconds: 600, AskedTokens: 1000, HitTokens: 900, LateTokens: 50, Loads: slow}, ""},
		{"too much is late", Recent{Seconds: 600, AskedTokens: 1000, LateTokens: 130, Loads: slow}, "13 % of the tokens that were asked for in the last 10m0s came after their deadline; a chunk from disk is up after 300 ms (p99 2,000 ms)"},
		{"the bucket may be it", Recent{Seconds: 600, AskedTokens: 1000, LateTokens: 130, Loads: slow, FromRemote: 1}, ""},
		{"nothing was loaded from disk", Recent{Seconds: 600, AskedTokens: 1000, LateTokens: 130}, ""},
		{"few are dropped", Recent{Seconds: 60, Dropped: 2, Writes: slow}, ""},
		{"many are dropped", Recent{Seconds: 60, Dropped: 4, Writes: slow}, "4 chunks were not written in the last 1m0s before DRAM needed their room; a write takes 300 ms (p99 2,000 ms)"},
	} {
		if got := tc.r.bottleneck(); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestDevice: the disk is as busy as its bytes are of what all its paths were found to do.
func TestDevice(t *testing.T) {
	r := Recent{Seconds: 10, Reads: Times{Bytes: 10 << 30}, Writes: Times{Bytes: 10 << 20}, Prefixes: 8, FromDisk: 2}
	path := func(read, write uint64) tier.PathStats {
		return tier.PathStats{Counters: map[string]uint64{"probed_read": read, "probed_write": write}}
	}
	for want, paths := range map[string][]tier.PathStats{
		"": nil,
		"read 1.0 GiB/s (25.0 % of the 4.0 GiB/s probed), wrote 1.0 MiB/s (0.1 % of the 1.0 GiB/s probed); 25.0 % of prefixes waited for it": {path(3<<30, 1<<29), path(1<<30, 1<<29)},
		"read 1.0 GiB/s, wrote 1.0 MiB/s; its device was not probed; 25.0 % of prefixes waited for it":                                       {path(3<<30, 1<<29), path(0, 0)},
	} {
		if got := r.device(tier.Stats{Paths: paths}); got != want {
			t.Errorf("%v:\n%q\n%q", paths, got, want)
		}
	}
}

// TestTimesOfTheDisk: the statistics have how long the disk takes.
func TestTimesOfTheDisk(t *testing.T) {
	d := serve(t, smallConfig(t))
	if r := d.stats().Recent; r.Reads.Count+r.Writes.Count != 0 {
		t.Errorf("before anything was done: %+v", r)
	}
	useModels(t, d, 0, 3, "m%d")
	until(t, "nothing is written", func() bool { return d.stats().Store.Tiers[tier.Disk].Puts == 3 })
	r := d.stats().Recent
	if r.Writes.Count != 3 || r.Writes.P50 <= 0 || r.Writes.P99 < r.Writes.P50 || r.AskedTokens == 0 || r.AskedTokens != d.server.Stats().AskedTokens {
		t.Errorf("after three chunks: %+v", r)
	}
}
