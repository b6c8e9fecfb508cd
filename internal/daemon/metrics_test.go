package daemon

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/metric"
	"github.com/kvstored/kvstored/remote"
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
	known := map[string]bool{}
	for _, m := range exported.List {
		known[m.Name] = true
	}
	name := regexp.MustCompile("`([a-z0-9_]+)(?:\\{[^`]*)?`")
	rows := 0
	for _, row := range strings.Split(watched(t), "\n") {
		cells := strings.Split(row, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		rows++
		cell := cells[1]
		if strings.Contains(cell, "*") { // the names are in the next
			cell = cells[2]
		}
		for _, m := range name.FindAllStringSubmatch(cell, -1) {
			if !known[m[1]] {
				t.Errorf("docs/operations.md names the metric %s, which there is not", m[1])
			}
		}
	}
	if rows == 0 {
		t.Error("docs/operations.md has no table of metrics")
	}
}

// TestEveryNumberIsExported: each number that a tier counts for itself has its metric, or is
// said to be in another, and each metric of such numbers has its number.
func TestEveryNumberIsExported(t *testing.T) {
	tiers := serve(t, smallConfig(t)).stats().Store.Tiers
	disk := tiers[tier.Disk]
	counted := map[tier.Place]map[string]uint64{
		tier.CPU:    tiers[tier.CPU].Counters,
		tier.Disk:   disk.Counters,
		tier.Remote: new(remote.Tier).Stats().Counters,
	}
	for p, counters := range counted {
		for n := range counters {
			if _, ok := numbers[p][n]; !ok && breakerNumbers[n] == nil {
				t.Errorf("the number %s of %v has no metric", n, p)
			}
		}
		for n := range numbers[p] {
			if _, ok := counters[n]; !ok {
				t.Errorf("%v has no number %s", p, n)
			}
		}
	}
	for n := range disk.Paths[0].Counters {
		if pathNumbers[n] == nil {
			t.Errorf("the number %s of a folder has no metric", n)
		}
	}
	if len(pathNumbers) != len(disk.Paths[0].Counters) {
		t.Errorf("a folder has the numbers %v", disk.Paths[0].Counters)
	}
}

// TestNoDatabasePid: the metrics have no process of a database where there is none.
func TestNoDatabasePid(t *testing.T) {
	if pid, err := (&metrics{daemon: new(Daemon)}).databasePid(); err == nil {
		t.Errorf("process %d without a disk tier", pid)
	}
}

// TestMetricsPage: docs/metrics.md has the metrics there are. Run with -update to write it anew.
func TestMetricsPage(t *testing.T) {
	const path = "../../docs/metrics.md"
	want := metricsPage()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("docs/metrics.md is not of this program (%v); write it anew: go test ./internal/daemon -run TestMetricsPage -update", err)
	}
}

var update = flag.Bool("update", false, "write docs/metrics.md anew")

// metricsPage is docs/metrics.md.
func metricsPage() string {
	var b strings.Builder
	b.WriteString("# Metrics\n\nAll metrics at `/metrics` of `admin.listen`, besides those of the Go runtime (`go_*`) and of the two processes " +
		"(`process_*`, `kvstored_database_process_*`). Which ones to watch, and what to do about them, is in [operations.md](operations.md#what-to-watch). " +
		"This page is generated; names have the prefix `kvstored_`. Counters end in `_total`; a metric with buckets is a histogram.\n\n" +
		"| metric | labels | what it is |\n|---|---|---|\n")
	list := slices.Clone(exported.List)
	slices.SortFunc(list, func(a, b metric.Described) int { return strings.Compare(a.Name, b.Name) })
	for _, m := range list {
		help := m.Help
		if n := len(m.Buckets); n > 0 {
			help += fmt.Sprintf(" %d buckets from %v s to %.3g s.", n, m.Buckets[0], m.Buckets[n-1])
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.Name, strings.Join(m.Labels, ", "), help)
	}
	return b.String()
}

// diskStats are the numbers of a disk tier that has just been made.
func diskStats(t *testing.T) tier.Stats {
	t.Helper()
	d := &Daemon{cfg: smallConfig(t), log: zerolog.Nop(), tiers: tiers{database: database.OpenHere}}
	defer d.Close()
	if err := d.makeDisk(&d.cfg, 0, d.log); err != nil {
		t.Fatal(err)
	}
	return d.disk.Stats()
}
