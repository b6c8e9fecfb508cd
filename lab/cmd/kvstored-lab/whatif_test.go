package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/lab/whatif"
	"github.com/kvstored/kvstored/policy"
)

// TestWhatIfFits: an estimate of the largest numbers fits into 80 columns, marks the present
// policy at the present size, and prints compute where that is asked for.
func TestWhatIfFits(t *testing.T) {
	r := &whatif.Report{At: time.Unix(1e9, 0), Requests: 1 << 30, Share: 1, Measured: 1, MeasuredTokens: 1 << 50, Dropped: 1 << 40, Bound: &whatif.Row{Hit: 1, Compute: 0.5}}
	r.Now.DRAM, r.Now.Disk = explain.Tier{Bytes: 1023 << 40, Policy: "tenure"}, explain.Tier{Bytes: 1023 << 40, Policy: "s3fifo"}
	for tier, now := range map[string]string{"cpu": "tenure", "disk": "s3fifo"} {
		for _, p := range policy.All() {
			for _, f := range []float64{0.5, 1, 2, 4} {
				r.Rows = append(r.Rows, whatif.Row{Tier: tier, Policy: p, Factor: f, Bytes: int64(f * float64(1023<<40)), Current: f == 1 && p == now, Hit: 1, Compute: 0.25, HitError: 1})
			}
		}
	}
	for _, compute := range []bool{false, true} {
		var b bytes.Buffer
		printWhatIf(&b, r, compute)
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		want := "*100.0 %"
		if compute {
			want = "*25.0 %"
		}
		if n := strings.Count(b.String(), want); n != 2 {
			t.Errorf("%q is there %d times:\n%s", want, n, b.String())
		}
	}
}
