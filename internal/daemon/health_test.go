package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/base/broken"
)

// TestHealth: what is wrong is told with its reason and since when, for as long as it is;
// a disk without room is, until it takes a chunk again.
func TestHealth(t *testing.T) {
	var h health
	at := func(clock string) time.Time {
		now, err := time.Parse("2006-01-02 15:04", clock)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	off := errors.New("the disk tier is off: no space left on device")
	for _, step := range []struct {
		clock         string
		trouble       error
		refused, puts uint64
		says          string
	}{
		{"2026-11-29 10:00", nil, 0, 3, ""},
		{"2026-11-29 10:02", off, 0, 3, "the disk tier is off: no space left on device, since 10:02"},
		{"2026-11-29 10:40", errors.Join(off, errors.New("the remote tier is off: x")), 0, 3, "the disk tier is off: no space left on device; the remote tier is off: x, since 10:02"},
		{"2026-11-29 23:00", off, 0, 3, "the disk tier is off: no space left on device, since 2026-11-29 10:02"},
		{"2026-11-29 23:01", nil, 0, 4, ""},
		{"2026-11-29 23:02", nil, 1, 5, errFull.Error() + ", since 23:02"},
		{"2026-11-29 23:03", nil, 1, 5, errFull.Error() + ", since 23:02"},
		{"2026-11-29 23:04", nil, 1, 6, ""},
	} {
		if got := h.look(at(step.clock), step.trouble, step.refused, step.puts); got != step.says {
			t.Errorf("%s: %q, want %q", step.clock, got, step.says)
		}
	}
}

// TestChanged: a state is told once for as long as it stays, and a daemon begins as not ready.
func TestChanged(t *testing.T) {
	var h health
	var told []string
	for _, state := range []string{"not ready", "ready", "ready", "degraded", "degraded", "ready"} {
		if before, changed := h.changed(state); changed {
			told = append(told, before+" > "+state)
		}
	}
	if want := []string{"not ready > ready", "ready > degraded", "degraded > ready"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// TestMistrust: where books are broken the daemon goes on, and says so; where more than a
// hundredth of DRAM was put aside it empties DRAM, and says that too.
func TestMistrust(t *testing.T) {
	cfg := smallConfig(t)
	cfg.Admin.Listen, cfg.Disk.Capacity = "127.0.0.1:0", 0
	d := serve(t, cfg)
	c := dial(t, d)
	for seed, size := range []int{64 << 10, 256 << 10} { // 0.4 %, and 1.6 % more
		prompt := client.Tokens([]uint32{uint32(seed), 2, 3, 4})
		if _, err := c.Put(t.Context(), prompt, 0, [][]byte{make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(broken.Survive())
	first := broken.Count() + 1
	d.cpu.Ledger().PutAside(1, "is of the test")
	says := func(times uint64, more string) {
		t.Helper()
		want := fmt.Sprintf("invariants of the daemon were broken %d times", times)
		if h := d.stats().Health; !strings.HasPrefix(h, "degraded: "+want) || !strings.Contains(h, more) {
			t.Errorf("health: %s", h)
		}
		if status, text := fetchPage(t, d, "/readyz"); status != http.StatusOK || !strings.HasPrefix(text, "ready\n"+want) || !strings.Contains(text, more) || !strings.Contains(text, ", since ") {
			t.Errorf("/readyz: %d, %s", status, text)
		}
	}
	says(first, "")
	if h := d.stats().Health; strings.Contains(h, "emptied") {
		t.Errorf("DRAM is mistrusted for a chunk: %s", h)
	}
	d.cpu.Ledger().PutAside(2, "is of the test")
	says(first+1, "2 chunks of DRAM (327680 bytes) are put aside, so that it is emptied")
	for _, line := range []string{"kvstored_dram_aside_bytes 327680\n", fmt.Sprintf("kvstored_broken_invariants_total %d\n", first+1)} {
		if !page(t, d, "/metrics", http.StatusOK, line) {
			t.Errorf("/metrics lacks %s", line)
		}
	}
}
