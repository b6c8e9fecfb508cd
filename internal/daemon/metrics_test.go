package daemon

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/tier"
)

// watched is what docs/operations.md says to watch.
func watched(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(data), "\n## What to watch\n")
	if !ok {
		t.Fatal("docs/operations.md has no section What to watch")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// TestWatchedMetrics: what docs/operations.md recommends to watch is exported.
func TestWatchedMetrics(t *testing.T) {
	exported := map[string]bool{}
	define := regexp.MustCompile(`(?:desc\(|Name: +)"(?:kvstored_)?([a-z_]+)"`)
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range sources {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range define.FindAllStringSubmatch(string(data), -1) {
			exported[m[1]] = true
		}
	}
	disk := diskStats(t)

	name := regexp.MustCompile("`([a-z0-9_]+)(?:\\{[^`]*)?`")
	rows := 0
	for _, row := range strings.Split(watched(t), "\n") {
		cells := strings.Split(row, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		rows++
		for _, m := range name.FindAllStringSubmatch(cells[1], -1) {
			if !exported[m[1]] {
				t.Errorf("docs/operations.md names the metric %s, which there is not", m[1])
			}
		}
		var counters map[string]uint64
		switch {
		case strings.Contains(cells[1], "tier_counter"):
			counters = disk.Counters
		case strings.Contains(cells[1], "tier_path"):
			counters = disk.Paths[0].Counters
		default:
			continue
		}
		for _, m := range name.FindAllStringSubmatch(cells[2], -1) {
			if _, ok := counters[m[1]]; !ok && !exported[m[1]] {
				t.Errorf("docs/operations.md names the number %s of the disk tier, which there is not", m[1])
			}
		}
	}
	if rows == 0 {
		t.Error("docs/operations.md has no table of metrics")
	}
}

// diskStats are the numbers of a disk tier that has just been made.
func diskStats(t *testing.T) tier.Stats {
	t.Helper()
	d := &Daemon{cfg: smallConfig(t), log: zerolog.Nop()}
	defer d.Close()
	if err := d.makeDisk(&d.cfg, 0, d.log); err != nil {
		t.Fatal(err)
	}
	return d.disk.Stats()
}
