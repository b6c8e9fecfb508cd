package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/lab/simulate"
)

var madeUpTrace = filepath.Join("..", "..", "simulate", "testdata", "separating.jsonl")

func TestSimulateJSON(t *testing.T) {
	code, out, errs := lab(t, "replay", "--simulate", "--trace", madeUpTrace,
		"--policy", "lru,belady", "--capacity-blocks", "10,20", "--json")
	if code != exitOK || errs != "" {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	var rows []map[string]any
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 4 {
		t.Fatalf("%d rows, want 4", len(rows))
	}
	for i, r := range rows {
		if r["policy"] != []string{"lru", "lru", "belady", "belady"}[i] || r["capacity_blocks"] != []float64{10, 20, 10, 20}[i] {
			t.Errorf("row %d: %v", i, r)
		}
		if r["overall_hit_rate"].(float64) != r["total_hit_tokens"].(float64)/r["total_prompt_tokens"].(float64) {
			t.Errorf("row %d: a rate of %v for %v of %v", i, r["overall_hit_rate"], r["total_hit_tokens"], r["total_prompt_tokens"])
		}
		if r["block_hits"].(float64)+r["block_misses"].(float64) != r["block_accesses"].(float64) || len(r) != 11 {
			t.Errorf("row %d: %v", i, r)
		}
	}
}

// TestSimulateRows: a table has rates in percent, in blocks of one capacity each, and
// with styles the best of each stands out.
func TestSimulateRows(t *testing.T) {
	rows := []simulate.Row{
		{Policy: "lru", CapacityBlocks: 1000, Requests: 7, TotalPromptTokens: 4000, TotalHitTokens: 1000, OverallHitRate: .25, OverallComputeRate: .2002, BlockAccesses: 9, BlockHits: 2, BlockMisses: 7000},
		{Policy: "lru", CapacityBlocks: 2000, Requests: 7, TotalPromptTokens: 4000, TotalHitTokens: 1001, OverallHitRate: .25025},
		{Policy: "arc", CapacityBlocks: 1000, Requests: 7, TotalPromptTokens: 4000, TotalHitTokens: 1002, OverallHitRate: .2505},
		{Policy: "arc", CapacityBlocks: 2000, Requests: 7, TotalPromptTokens: 4000, TotalHitTokens: 1001, OverallHitRate: .25025},
		{Policy: simulate.Belady, CapacityBlocks: 1000, Requests: 7, TotalPromptTokens: 4000, TotalHitTokens: 3000, OverallHitRate: .75},
	}
	var f replayFlags
	var people, styled strings.Builder
	f.rowTable(&people, rows, false)
	var seen []string
	for _, line := range strings.Split(people.String(), "\n") {
		name, _, _ := strings.Cut(line, " ")
		seen = append(seen, name)
	}
	if got := strings.Join(seen, " "); got != "policy  lru arc belady  lru arc  not " {
		t.Errorf("lines begin with %q\n%s", got, people.String())
	}
	for _, want := range []string{"25.05 %", "20.02 %", "7,000", "\nnot in the daemon: belady\n"} {
		if !strings.Contains(people.String(), want) {
			t.Errorf("no %s in\n%s", want, people.String())
		}
	}
	f.rowTable(&styled, rows, true)
	for i, line := range strings.Split(styled.String(), "\n") {
		best := slices.Contains([]int{3, 6, 7}, i) // both at 2,000
		if strings.HasPrefix(line, boldText) != best || strings.HasPrefix(line, faintText) != (i < 1 || i == 4) {
			t.Errorf("line %d: %q", i, line)
		}
	}
}

// TestSimulateOptions: of a trace without partial blocks the first requests are played,
// S3FIFO is the static variant, its numbers change its hits, and the hits of
// all requests add up to the total.
func TestSimulateOptions(t *testing.T) {
	rows := func(args ...string) (rows []simulate.Row) {
		t.Helper()
		code, out, errs := lab(t, append([]string{"replay", "--simulate", "--save-unfull", "--trace", madeUpTrace, "--capacity-blocks", "20", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &rows); code != exitOK || err != nil {
			t.Fatalf("%v: exit code %d, %v, %s", args, code, err, errs)
		}
		return rows
	}
	static, named, small, few := rows("--policy", "s3fifo-static"), rows("--policy", "S3FIFO"), rows("--policy", "s3fifo-static", "--small-ratio", ".4"), rows("--policy", "s3fifo-static", "--max-freq", "1")
	if named[0].TotalHitTokens != static[0].TotalHitTokens || named[0].Policy != static[0].Policy {
		t.Errorf("S3FIFO is %+v, s3fifo-static %+v", named[0], static[0])
	}
	if small[0].BlockHits == static[0].BlockHits || few[0].BlockHits == static[0].BlockHits {
		t.Errorf("the numbers of s3fifo-static change nothing: %d, %d, %d hits", static[0].BlockHits, small[0].BlockHits, few[0].BlockHits)
	}
	if a, b := rows("--policy", "s3fifo"), rows("--policy", "s3fifo", "--small-ratio", ".4", "--max-freq", "1"); a[0].BlockHits == b[0].BlockHits {
		t.Errorf("the numbers of s3fifo change nothing: %d hits", a[0].BlockHits)
	}
	all := rows("--policy", "lru,tenure", "--per-request")
	for _, r := range all {
		sum := int64(0)
		for _, n := range r.PerRequest {
			sum += n
		}
		if len(r.PerRequest) != r.Requests || sum != r.TotalHitTokens || sum == 0 {
			t.Errorf("%s: %d requests hit %d, want %d and %d", r.Policy, len(r.PerRequest), sum, r.Requests, r.TotalHitTokens)
		}
	}
	if r := rows("--policy", "lru", "--limit", "7", "--per-request")[0]; r.Requests != 7 || !slices.Equal(r.PerRequest, all[0].PerRequest[:7]) {
		t.Errorf("7 requests: %+v", r)
	}
	if a, b := rows("--policy", "lru")[0], rows("--policy", "lru", "--prefill-depth", "100")[0]; a.OverallComputeRate <= b.OverallComputeRate || a.TotalHitTokens != b.TotalHitTokens {
		t.Errorf("deep tokens, of which fewer hit, weigh more: %+v, %+v", a, b)
	}
	by := []string{"--policy", "lru", "--capacity-blocks", "20", "--tree", "--block-size", "512", "--prefill-depth", "500"}
	if tokens, compute := rows(by...)[0], rows(append(by, "--rank-by", "compute")...)[0]; tokens.TotalHitTokens != compute.TotalHitTokens {
		t.Errorf("lru: by tokens it hits %d, by compute %d", tokens.TotalHitTokens, compute.TotalHitTokens)
	}
	whole := write(t, `{"timestamp": 0, "input_length": 1000, "output_length": 1, "hash_ids": [1]}`+"\n"+`{"timestamp": 1, "input_length": 1000, "output_length": 1, "hash_ids": [1]}`)
	code, out, errs := lab(t, "replay", "--simulate", "--trace", whole, "--policy", "lru", "--capacity-blocks", "5")
	if code != exitOK || !strings.Contains(out, "25.60 %") { // 512 of 2,000
		t.Errorf("a trace of whole blocks: exit code %d, %s%s", code, out, errs)
	}
}

// TestSimulateTiers: a pair of tiers for each of the policies, modes and sizes.
func TestSimulateTiers(t *testing.T) {
	base := []string{"replay", "--simulate", "--trace", madeUpTrace, "--policy", "lru", "--capacity-blocks", "10"}
	code, out, errs := lab(t, append(base, "--disk-blocks", "20,40", "--disk-policy", "lru,tenure", "--write-mode", "all", "--bytes-per-block", "1MiB", "--json")...)
	var rows []simulate.TierRow
	if err := json.Unmarshal([]byte(out), &rows); code != exitOK || err != nil || len(rows) != 16 {
		t.Fatalf("exit code %d, %v, %d rows, %s", code, err, len(rows), errs)
	}
	for _, r := range rows {
		if r.WrittenBytes != r.WrittenBlocks<<20 || r.TotalHitTokens < r.DRAMHitTokens || r.FinalDisk > r.DiskBlocks {
			t.Errorf("%+v", r)
		}
	}
	code, out, errs = lab(t, append(base, "--disk-blocks", "20", "--write-mode", "back")...)
	if code != exitOK || !strings.Contains(out, "back") || !strings.Contains(out, " %") {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	for _, bad := range [][]string{
		{"--disk-blocks", "x"},
		{"--disk-blocks", "0"},
		{"--disk-blocks", "20", "--write-mode", "around"},
		{"--disk-blocks", "20", "--disk-policy", "belady"},
		{"--disk-blocks", "20", "--unsafe-age", "-1s"},
		{"--disk-blocks", "20", "--write-mode", "selective", "--min-hits", "0"},
		{"--disk-blocks", "20", "--disk-rank-by", "time"},
		{"--disk-blocks", "20", "--tree"},
		{"--disk-blocks", "20", "--capacity-blocks", "auto"},
		{"--disk-blocks", "20", "--per-request"},
		{"--write-mode", "back"},
		{"--disk-policy", "lru"},
	} {
		if code, out, errs := lab(t, append(slices.Clone(base), bad...)...); code != exitUsage || out != "" || errs == "" {
			t.Errorf("%v: exit code %d, %s%s", bad, code, out, errs)
		}
	}
}

func TestSimulateResample(t *testing.T) {
	code, out, errs := lab(t, "replay", "--simulate", "--trace", madeUpTrace, "--policy", "lru,tenure",
		"--capacity-blocks", "20", "--resample", "2", "--hints", "oracle", "--json")
	var spreads []simulate.Spread
	if err := json.Unmarshal([]byte(out), &spreads); code != exitOK || err != nil {
		t.Fatalf("exit code %d, %v, %s", code, err, errs)
	}
	if len(spreads) != 2 || spreads[1].Policy != "tenure" || spreads[1].Samples != 2 || spreads[1].Mean <= 0 {
		t.Errorf("%+v", spreads)
	}
}

// TestSimulateSessions: a trace of sessions is read, whole blocks are stored
// unless partial ones are asked for, and hints are carried out.
func TestSimulateSessions(t *testing.T) {
	trace := write(t, `{"block_size":64,"requests":[{"t":0,"in":100,"hash_ids":[1]},{"t":9,"in":130,"hash_ids":[1,2,3]}]}`+"\n"+
		`{"block_size":64,"start":1,"requests":[{"t":0,"in":64,"hash_ids":[1]}]}`+"\n")
	for _, tt := range []struct {
		args []string
		hits int64
		last int
	}{
		{nil, 0, 1},
		{[]string{"--capacity-blocks", "9"}, 64, 3},
		{[]string{"--capacity-blocks", "9", "--save-unfull"}, 64, 4},
		{[]string{"--hints", "done"}, 64, 1}, // what is not asked for again displaces nothing
		{[]string{"--hints", "ends"}, 0, 1},
		{[]string{"--hints", "pause"}, 64, 1}, // it is back before it is due
	} {
		args := append([]string{"replay", "--simulate", "--tree", "--trace", trace, "--block-size", "64", "--policy", "lru", "--capacity-blocks", "1", "--json"}, tt.args...)
		if len(tt.args) > 0 && tt.args[0] == "--capacity-blocks" {
			args = slices.Delete(args, 9, 11)
		}
		code, out, errs := lab(t, args...)
		var rows []simulate.Row
		if err := json.Unmarshal([]byte(out), &rows); code != exitOK || err != nil {
			t.Fatalf("%v: exit code %d, %v, %s", args, code, err, errs)
		}
		if r := rows[0]; r.TotalHitTokens != tt.hits || r.FinalCacheBlocks != tt.last || r.Requests != 3 {
			t.Errorf("%v: %+v; want %d tokens hit, %d blocks in the end", tt.args, r, tt.hits, tt.last)
		}
	}
	if code, _, errs := lab(t, "replay", "--simulate", "--trace", madeUpTrace, "--hints", "pause"); code != exitFailure || !strings.Contains(errs, "sessions") {
		t.Errorf("pauses of a trace without sessions: exit code %d, %s", code, errs)
	}
}

func TestSimulateErrors(t *testing.T) {
	good, err := os.ReadFile(madeUpTrace)
	if err != nil {
		t.Fatal(err)
	}
	bad := write(t, string(good)+"bad\n")
	simulated := func(more ...string) []string {
		return append([]string{"replay", "--simulate", "--trace", bad}, more...)
	}
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{simulated(), exitFailure, bad + ":91: "},
		{simulated("--skip-bad", "--policy", "fifo"), exitOK, "1 line skipped, the first: invalid trace: " + bad + ":91: "},
		{simulated("--block-size", "256"), exitFailure, bad + ":1: "},
		{simulated("--policy", "clock"), exitUsage, `"clock"`},
		{simulated("--policy", "s3fifo-static", "--tree"), exitUsage, "s3fifo-static"},
		{simulated("--hints", "some"), exitUsage, "--hints"},
		{simulated("--small-ratio", "0"), exitUsage, "--small-ratio"},
		{simulated("--small-ratio", "1"), exitUsage, "below 1"},
		{simulated("--max-freq", "0"), exitUsage, "--max-freq"},
		{simulated("--max-freq", "32"), exitUsage, "1 to 31"},
		{simulated("--max-freq", "2", "--policy", "lru"), exitUsage, "s3fifo"},
		{simulated("--prefill-depth", "0"), exitUsage, "--prefill-depth"},
		{simulated("--prefill-depth", "-5"), exitUsage, "--prefill-depth"},
		{simulated("--rank-by", "cost"), exitUsage, "tokens or compute"},
		{simulated("--rank-by", ""), exitUsage, "--rank-by"},
		{simulated("--disk-rank-by", "compute"), exitUsage, "--disk-blocks"},
		{simulated("--per-request"), exitUsage, "--json"},
		{simulated("--limit", "-1"), exitUsage, "--limit"},
		{simulated("--limit", "90", "--policy", "fifo"), exitOK, ""},
		{simulated("--resample", "1"), exitUsage, "--resample"},
		{simulated("--capacity-blocks", "10,x"), exitUsage, `"x"`},
		{simulated("--capacity-blocks", "0"), exitUsage, "at least 1"},
		{simulated("--bytes-per-block", "2m"), exitUsage, "--bytes-per-block"},
		{simulated("--payload-bytes", "1MiB"), exitUsage, "--payload-bytes"},
		{[]string{"replay", "--trace", bad, "--policy", "lru"}, exitUsage, "--simulate"},
		{[]string{"replay", "--simulate", "--trace", bad + ".none"}, exitFailure, "no such file"},
	} {
		code, _, errs := lab(t, tt.args...)
		if code != tt.code || !strings.Contains(errs, tt.says) {
			t.Errorf("%v: exit code %d, %q; want %d and %q", tt.args, code, errs, tt.code, tt.says)
		}
	}
}
