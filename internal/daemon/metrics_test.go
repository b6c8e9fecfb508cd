package daemon

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/database/databasetest"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/httpd"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/remote"
	"github.com/kvstored/kvstored/tier"
)

// allMetrics are those of the daemon, by name; a number that is no histogram has no buckets.
func allMetrics() (all []histogram) {
	for i := range exported {
		m := &exported[i]
		all = append(all, histogram{m.Name, m.Help, m.Labels, nil})
	}
	all = append(all, requestSeconds, tierSeconds, readySeconds, loadSeconds)
	slices.SortFunc(all, func(a, b histogram) int { return strings.Compare(a.name, b.name) })
	return all
}

// operators is what tells operators of metrics: the texts of alerts, of panels, and of the
// pages, but for the page that lists all metrics.
func operators(t *testing.T) (rules, pages string) {
	t.Helper()
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	err := filepath.WalkDir("../../docs", func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" && d.Name() != "metrics.md" {
			pages += read(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return read("../../deploy/grafana/kvstored.json") + read("../../deploy/prometheus/kvstored.rules.yaml"), pages
}

// TestEveryMetricHasAReader: there are at most 60 metrics, each with a name of its own, and an
// alert, a panel or a page for operators names each.
func TestEveryMetricHasAReader(t *testing.T) {
	rules, pages := operators(t)
	all := allMetrics()
	if len(all) > 60 {
		t.Errorf("%d metrics, at most 60: what nobody looks at belongs to `kvstored stats --json` only", len(all))
	}
	for i, m := range all {
		if i > 0 && all[i-1].name == m.name {
			t.Errorf("two metrics are called %s", m.name)
		}
		inRules := regexp.MustCompile(`\bkvstored_` + m.name + `(_bucket|_count|_sum)?\b`).MatchString(rules)
		if inPages := regexp.MustCompile("`(kvstored_)?" + m.name + "(\\{[^`]*)?`").MatchString(pages); !inRules && !inPages {
			t.Errorf("no alert, no panel and no page names %s", m.name)
		}
	}
}

// TestPagesNameMetrics: what the pages for operators call a metric is exported. Those of the
// router and the bridge are in router/README.md.
func TestPagesNameMetrics(t *testing.T) {
	known := map[string]bool{}
	for _, m := range allMetrics() {
		known[m.name] = true
	}
	_, pages := operators(t)
	found := regexp.MustCompile("`(?:kvstored_)?([a-z_]+_total|disk_(?:io|path|paths|database|direct)_[a-z_]+)\\b").FindAllStringSubmatch(pages, -1)
	for _, m := range found {
		if !known[m[1]] {
			t.Errorf("a page names the metric %s, which there is not", m[1])
		}
	}
	if len(found) < 20 {
		t.Errorf("the pages name %d metrics", len(found))
	}
}

// watched is what docs/run/troubleshooting.md says to watch.
func watched(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/run/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(data), "\n## What to watch\n")
	if !ok {
		t.Fatal("docs/run/troubleshooting.md has no section What to watch")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// TestWatchedMetrics: what docs/run/troubleshooting.md recommends to watch is exported.
func TestWatchedMetrics(t *testing.T) {
	known := map[string]bool{}
	for _, m := range allMetrics() {
		known[m.name] = true
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
				t.Errorf("docs/run/troubleshooting.md names the metric %s, which there is not", m[1])
			}
		}
	}
	if rows == 0 {
		t.Error("docs/run/troubleshooting.md has no table of metrics")
	}
}

// TestEveryMetricIsRead: each metric has a number where the statistics have one of everything.
func TestEveryMetricIsRead(t *testing.T) {
	st := serve(t, smallConfig(t)).stats()
	disk := st.Store.Tiers[tier.Disk]
	disk.Quotas = []ledger.QuotaStats{{Match: "m"}}
	st.Store.Tiers[tier.Disk], st.Store.Tiers[tier.Remote] = disk, new(remote.Tier).Stats()
	st.Store.Written[tier.Disk] = writeback.Written{Dropped: map[explain.Decline]writeback.Volume{0: {}}}
	st.Server.Models = []server.ModelStats{{Model: "m"}}
	st.Server.ErrorsBy, st.Server.Lost = make([]server.Failures, 1), make([]server.Lost, 1)
	st.Server.Missed.Missed, st.Server.DiffersBySpace = make([]explain.Total, 1), map[string]uint64{"s": 1}
	st.RESP = &resp.Stats{Dropped: map[string]uint64{"no_room": 1}}
	for i := range exported {
		m, n := &exported[i], 0
		out := make(chan prometheus.Metric, 1000)
		httpd.Collect(out, prefix, exported[i:i+1], &st)
		for close(out); ; n++ {
			if _, ok := <-out; !ok {
				break
			}
		}
		if n == 0 {
			t.Errorf("%s has no number", m.Name)
		}
	}
}

// TestNoDatabasePid: the metrics have no process of a database where there is none.
func TestNoDatabasePid(t *testing.T) {
	if pid, err := (&metrics{daemon: new(Daemon)}).databasePid(); err == nil {
		t.Errorf("process %d without a disk tier", pid)
	}
}

// TestMetricsPage: docs/reference/metrics.md has the metrics there are. Run with -update to write it anew.
func TestMetricsPage(t *testing.T) {
	const path = "../../docs/reference/metrics.md"
	want := metricsPage()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("docs/reference/metrics.md is not of this program (%v); write it anew: go test ./internal/daemon -run TestMetricsPage -update", err)
	}
}

var update = flag.Bool("update", false, "write docs/reference/metrics.md anew")

// metricsPage is docs/reference/metrics.md.
func metricsPage() string {
	var b strings.Builder
	b.WriteString("# Metrics\n\nAll metrics at `/metrics` of `admin.listen`, besides `go_*`, `process_*` and `kvstored_database_process_*`. " +
		"[What to watch](../run/troubleshooting.md#what-to-watch) has the first ones to look at; every other number is in `kvstored stats --json`. " +
		"Names have the prefix `kvstored_`; labels are in braces. This page is generated.\n\n" +
		"| metric | what it is |\n|---|---|\n")
	for _, m := range allMetrics() {
		if n := len(m.buckets); n > 0 {
			m.help += fmt.Sprintf(" %d buckets from %vs to %.3gs.", n, m.buckets[0], m.buckets[n-1])
		}
		if len(m.labels) > 0 {
			m.name += "{" + strings.Join(m.labels, ",") + "}"
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", m.name, m.help)
	}
	return b.String()
}

// diskStats are the numbers of a disk tier that has just been made.
func diskStats(t *testing.T) tier.Stats {
	t.Helper()
	d := &Daemon{cfg: smallConfig(t), log: zerolog.Nop(), tiers: tiers{database: databasetest.Open}}
	defer d.Close()
	if err := d.makeDisk(&d.cfg, 0, d.log); err != nil {
		t.Fatal(err)
	}
	return d.disk.Stats()
}
