package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/lab/simulate"
)

func TestSimulateGroups(t *testing.T) {
	file := filepath.Join(t.TempDir(), "model.yaml")
	text := "model: m\ngroups:\n- {kind: full, bytes_per_token: 100}\n- {kind: window, bytes_per_token: 200, window: 600}\n- {kind: state, state_bytes: 51200, state_every: 512}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := lab(t, "replay", "--simulate", "--groups", file, "--trace", madeUpTrace, "--policy", "lru,infinite", "--capacity-blocks", "20", "--json")
	if code != exitOK || errs != "" {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	var rows []map[string]any
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 8 || rows[0]["store"] != "dense" || rows[3]["store"] != "dead" || rows[4]["policy"] != "infinite" || rows[0]["capacity_bytes"] != 20.*512*400 {
		t.Fatalf("%v", rows)
	}
	code, out, errs = lab(t, "replay", "--simulate", "--groups", "gpt-oss-120b", "--trace", madeUpTrace, "--policy", "lru", "--capacity-blocks", "20")
	if code != exitOK || !strings.HasPrefix(out, "policy  store") || !strings.Contains(out, "full=") || strings.Count(out, "\n") != 5 {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	checkGroupsOverDisk(t, file)
	for _, bad := range [][]string{
		{"--simulate", "--groups", "gpt-oss-12b"},                // no file, and no name
		{"--groups", "gpt-oss-12b"},                              // nor live
		{"--groups", "nemotron-h-8b", "--payload-bytes", "8MiB"}, // too large a state
		{"--groups", "gpt-oss-120b", "--block-size", "0"},
		{"--simulate", "--groups", file, "--tree"},
		{"--simulate", "--groups", file, "--policy", "tenure"},
		{"--simulate", "--groups", file, "--capacity-blocks", "0"},
		{"--simulate", "--groups", file, "--block-size", "0"},
		{"--simulate", "--groups", file, "--per-request"}, // has no room in a table
		{"--groups", file, "--per-request"},
		{"--simulate", "--groups", file, "--disk-blocks", "9"}, // and how large is DRAM?
		{"--simulate", "--groups", file, "--capacity-blocks", "9", "--disk-blocks", "many"},
		{"--simulate", "--groups", file, "--capacity-blocks", "9", "--disk-blocks", "-1"},
		{"--simulate", "--groups", file, "--disk-policy", "lru"},
		{"--simulate", "--groups", file, "--capacity-blocks", "9", "--disk-blocks", "9", "--disk-policy", "tenure"},
		{"--simulate", "--groups", file, "--capacity-blocks", "9", "--disk-blocks", "9", "--write-mode", "back"},
	} {
		if code, out, errs := lab(t, append([]string{"replay", "--trace", madeUpTrace}, bad...)...); code != exitUsage || out != "" || errs == "" {
			t.Errorf("%v: exit code %d, %s%s", bad, code, out, errs)
		}
	}
}

// checkGroupsOverDisk: a disk that has room for all makes up for DRAM that has not, a request
// at a time.
func checkGroupsOverDisk(t *testing.T, model string) {
	t.Helper()
	simulated := func(flags ...string) (rows []simulate.GroupRow) {
		args := []string{"replay", "--simulate", "--groups", model, "--trace", madeUpTrace, "--policy", "lru", "--json", "--per-request"}
		code, out, errs := lab(t, append(args, flags...)...)
		if err := json.Unmarshal([]byte(out), &rows); err != nil || code != exitOK || len(rows) != 4 {
			t.Fatalf("%v: exit code %d, %v, %d rows, %s", flags, code, err, len(rows), errs)
		}
		for _, r := range rows {
			sum := int64(0)
			for _, n := range r.PerRequest {
				sum += n
			}
			if len(r.PerRequest) != r.Requests || sum != r.TotalHitTokens {
				t.Errorf("%v, %s: %d tokens of %d requests; want %d of %d", flags, r.Store, sum, len(r.PerRequest), r.TotalHitTokens, r.Requests)
			}
		}
		return rows
	}
	alone, all := simulated("--capacity-blocks", "20"), simulated("--capacity-blocks", "100000")
	over := simulated("--capacity-blocks", "20", "--disk-blocks", "100000", "--disk-policy", "lru")
	for i, r := range over {
		if r.TotalHitTokens != all[i].TotalHitTokens || r.TotalHitTokens <= alone[i].TotalHitTokens || r.LoadedBelow == 0 || r.LoadedBelow > r.LoadedBytes {
			t.Errorf("%s: %d tokens over a disk, %d bytes of %d from there; %d in one tier for all", r.Store, r.TotalHitTokens, r.LoadedBelow, r.LoadedBytes, all[i].TotalHitTokens)
		}
		if r.DiskBlocks != 100000 || r.DiskPolicy != "lru" || r.DiskBytes != 100000*512*400 {
			t.Errorf("%+v", r)
		}
	}
}
