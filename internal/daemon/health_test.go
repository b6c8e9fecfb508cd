package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/tier"
)

// TestHealth: what is wrong is told with its reason, since when and what to do, for as long
// as it is, and logged where the state is another.
func TestHealth(t *testing.T) {
	at := func(clock string) time.Time {
		now, err := time.Parse("2006-01-02 15:04", clock)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	scan := trouble{errors.New("the disk tier is being scanned"), "Wait"}
	disk := trouble{errors.New("the disk tier is off: no space left on device\nfree some"), "Repair it"}
	far := trouble{errors.New("the remote tier is off: x"), "Repair it"}
	room := trouble{errFull, "Free room"}
	var h health
	for _, step := range []struct {
		clock, state string
		list         []trouble
		says         string
		changed      bool
	}{
		{"2026-11-29 09:59", "not ready", []trouble{scan}, "not ready: the disk tier is being scanned, since 09:59. Wait", false},
		{"2026-11-29 10:00", "ready", nil, "ready", true},
		{"2026-11-29 10:02", "degraded", []trouble{disk}, "degraded: the disk tier is off: no space left on device; free some, since 10:02. Repair it", true},
		{"2026-11-29 10:40", "degraded", []trouble{disk, far, room}, "degraded: the disk tier is off: no space left on device; free some; the remote tier is off: x; " + errFull.Error() + ", since 10:02. Repair it. Free room", false},
		{"2026-11-29 23:00", "degraded", []trouble{far}, "degraded: the remote tier is off: x, since 2026-11-29 10:02. Repair it", false},
		{"2026-11-29 23:01", "ready", nil, "ready", true},
		{"2026-11-29 23:02", "degraded", []trouble{far}, "degraded: the remote tier is off: x, since 23:02. Repair it", true},
	} {
		if got, before, changed := h.tell(at(step.clock), step.state, step.list); got != step.says || changed != step.changed || changed != (before != step.state) {
			t.Errorf("%s: %q after %s, changed %t; want %q", step.clock, got, before, changed, step.says)
		}
	}
}

// TestFull: a disk that had no room for a chunk is told until it takes one again.
func TestFull(t *testing.T) {
	var h health
	for i, step := range []struct {
		refused, puts uint64
		full          bool
	}{{0, 3, false}, {1, 5, true}, {1, 5, true}, {1, 6, false}} {
		s := store.Stats{
			Written: map[tier.Place]writeback.Written{tier.Disk: {Dropped: map[explain.Decline]writeback.Volume{explain.NoRoom: {Chunks: step.refused}}}},
			Tiers:   map[tier.Place]tier.Stats{tier.Disk: {Puts: step.puts}},
		}
		if h.look(&s); h.full.Load() != step.full {
			t.Errorf("look %d: full is %t", i, h.full.Load())
		}
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
	t.Cleanup(base.SurviveBroken())
	first := base.BrokenCount() + 1
	d.cpu.Ledger().PutAside(1, "is of the test")
	says := func(times uint64, more string) {
		t.Helper()
		want := fmt.Sprintf("invariants of the daemon were broken %d times", times)
		if h := d.stats().Health; !strings.HasPrefix(h, "degraded: "+want) || !strings.Contains(h, more) || !strings.Contains(h, ", since ") || !strings.HasSuffix(h, ". Restart the daemon, and report what its log says of it") {
			t.Errorf("health: %s", h)
		}
		if status, text := fetchPage(t, d, "/readyz"); status != http.StatusOK || strings.TrimSpace(text) != "ready\n"+d.stats().Health {
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
