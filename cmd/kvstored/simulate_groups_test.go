package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/replay"
	"github.com/kvstored/kvstored/internal/simulate"
)

func TestSimulateGroups(t *testing.T) {
	file := filepath.Join(t.TempDir(), "model.yaml")
	text := "model: m\nevery: 1024\ngroups:\n- {kind: full, bytes_per_token: 100}\n- {kind: window, bytes_per_token: 200, window: 600}\n- {kind: state, state_bytes: 51200, state_every: 512}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := kvstored(t, "", "replay", "--simulate", "--groups", file, "--trace", madeUpTrace, "--policy", "lru,infinite", "--capacity-blocks", "20", "--json")
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
	code, out, errs = kvstored(t, "", "replay", "--simulate", "--groups", "gpt-oss-120b", "--trace", madeUpTrace, "--policy", "lru", "--capacity-blocks", "20")
	if code != exitOK || !strings.HasPrefix(out, "policy  store") || !strings.Contains(out, "full=") || strings.Count(out, "\n") != 5 {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	for _, bad := range [][]string{
		{"--simulate", "--groups", "gpt-oss-12b"},                // no file, and no name
		{"--groups", "gpt-oss-12b"},                              // nor live
		{"--groups", "nemotron-h-8b", "--payload-bytes", "8MiB"}, // too large a state
		{"--groups", "gpt-oss-120b", "--block-size", "0"},
		{"--simulate", "--groups", file, "--tree"},
		{"--simulate", "--groups", file, "--policy", "tenure"},
		{"--simulate", "--groups", file, "--capacity-blocks", "0"},
		{"--simulate", "--groups", file, "--block-size", "0"},
	} {
		if code, out, errs := kvstored(t, "", append([]string{"replay", "--trace", madeUpTrace}, bad...)...); code != exitUsage || out != "" || errs == "" {
			t.Errorf("%v: exit code %d, %s%s", bad, code, out, errs)
		}
	}
}

// TestReplayGroups: a daemon hits of generated groups what the simulator says, and loads
// what the hits need.
func TestReplayGroups(t *testing.T) {
	if testing.Short() {
		t.Skip("it plays a trace")
	}
	d := startDaemonWith(t, func(c *config.Config) {
		c.CPU.Capacity = 16 << 20
	})
	var live replay.Result
	code, out, errs := kvstored(t, "", "replay", "--groups", "gemma-3-27b", "--payload-bytes", "64KiB", "--trace", madeUpTrace, "--wait-complete", "--json", "--socket", d.socket)
	if err := json.Unmarshal([]byte(out), &live); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v, %s", code, err, errs)
	}
	if !live.OK() || !live.DaemonAgrees() || live.NeededBytes == 0 || live.NeededBelow == 0 {
		t.Errorf("%+v of %+v", live, live.Daemon)
	}
	if loaded := live.Daemon.LoadedBytes; loaded > live.NeededBelow*21/20 {
		t.Errorf("%d bytes came up, %d were needed", loaded, live.NeededBelow)
	}
	code, out, errs = kvstored(t, "", "replay", "--simulate", "--groups", "gemma-3-27b", "--policy", "infinite", "--trace", madeUpTrace, "--capacity-blocks", "9", "--json")
	var rows []simulate.GroupRow
	if err := json.Unmarshal([]byte(out), &rows); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v, %s", code, err, errs)
	}
	if want := rows[3].TotalHitTokens; live.TotalHitTokens != want {
		t.Errorf("%d tokens hit; simulated are %d, where nothing goes", live.TotalHitTokens, want)
	}
	if code, out, _ := kvstored(t, "", "replay", "--groups", "gemma-3-27b", "--payload-bytes", "64KiB", "--trace", madeUpTrace, "--socket", d.socket); code != exitOK || !strings.Contains(out, "needed") {
		t.Errorf("exit code %d, %s", code, out)
	}
}
