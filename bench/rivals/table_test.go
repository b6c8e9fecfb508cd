package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/bench/measure"
)

// made is a table of two rounds of one size and one batch, in which redis failed before
// its second round, LMCache was not run, and memcached is faster in one row.
func made(t *testing.T) *table {
	t.Helper()
	o, err := parse(strings.Fields("-rounds 3 -rivals memcached,redis,lmcache -sizes 64KiB -batches 16x1MiB"))
	if err != nil {
		t.Fatal(err)
	}
	made := newTable(o)
	made.rounds = o.rounds
	for _, c := range []*contender{{name: ours, What: "kvstored 1"}, {name: "memcached", What: "pymemcache 4"}, {name: "redis", What: "redis-py 8"}, {name: echo, What: "echo"}} {
		made.run(c)
	}
	made.not("lmcache", errors.New("no wheel for this Python."))
	one, many := newCell(1, 64<<10), newCell(16, 1<<20)
	for _, times := range []struct{ ours, memcached float64 }{{100, 50}, {400, 100}, {200, 90}} { // ratios .5, .25, .45
		made.add(ours, cell{}, map[string][]float64{"ping": {9000, 20_000, 50_000}})
		made.add(echo, cell{}, map[string][]float64{"ping": {12_500}})
		made.add(ours, one, map[string][]float64{"get": {times.ours * 1000}, "put": {1_000_000}})
		made.add("memcached", one, map[string][]float64{"get": {times.memcached * 1000}, "put": {1_500_000}})
	}
	made.add("redis", one, map[string][]float64{"get": {300_000}, "put": {2_000_000}})
	made.add(ours, many, map[string][]float64{"get": {2_000_000}, "put": {3_000_000}})
	return made
}

func TestTable(t *testing.T) {
	head, got, _ := strings.Cut(made(t).text(), "\n\n")
	if !strings.HasPrefix(head, "Microseconds a call, medians of 3 rounds (") {
		t.Errorf("the head is %q", head)
	}
	const want = `|                   | kvstored         | memcached              | redis                  | echo                   |
| ----------------- | ---------------- | ---------------------- | ---------------------- | ---------------------- |
| ping              | 20.0 (20.0-20.0) | -                      | -                      | 12.5 (0.62x 0.62-0.62) |
| get 64 KiB        | 200 (100-400)    | 90.0 (0.45x 0.25-0.50) | 300 (3.00x 3.00-3.00)  | -                      |
| put 64 KiB        | 1000 (1000-1000) | 1500 (1.50x 1.50-1.50) | 2000 (2.00x 2.00-2.00) | -                      |
| get of 16 x 1 MiB | 2000 (2000-2000) | -                      | -                      | -                      |
| put of 16 x 1 MiB | 3000 (3000-3000) | -                      | -                      | -                      |

kvstored is first in 1 of 2 rows; behind in get 64 KiB (memcached 0.45x). An echo is 64 bytes between two Python processes.
Run: kvstored: kvstored 1.
Run: memcached: pymemcache 4.
Run: redis: redis-py 8.
Not run: lmcache: no wheel for this Python.
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The daemon's own Redis front end and the echo are no rivals.
func TestFastest(t *testing.T) {
	r := measure.Row{Times: map[string][]float64{ours: {10, 10}, oursRedis: {1, 1}, echo: {1, 1}}}
	if name, _ := fastest(&r); name != "" {
		t.Errorf("%s is no rival", name)
	}
	r.Times["redis"], r.Times["memcached"] = []float64{30, 20}, []float64{15}
	if name, ratio := fastest(&r); name != "memcached" || ratio != 1.5 {
		t.Errorf("%s %.2f, want memcached, 1.50 in the one round that it has", name, ratio)
	}
}

// Of an interrupted run whole rounds count.
func TestCut(t *testing.T) {
	of := made(t)
	of.rounds = 1
	of.cut()
	if r := of.Row("get 64 KiB"); len(r.Times[ours]) != 1 || len(r.Times["memcached"]) != 1 || len(r.Times["redis"]) != 1 || len(r.Times["lmcache"]) != 0 {
		t.Errorf("%v", r.Times)
	}
}

// What is saved has each round's time, what was run and what was not.
func TestSave(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rivals.json")
	if err := made(t).save(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got table
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 5 || got.Rows[1].What != "get 64 KiB" || got.Rows[1].Times["memcached"][1] != 100 || got.NotRun["lmcache"] == "" || got.Clients["redis"] != "redis-py 8" {
		t.Errorf("%s", text)
	}
}
