package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		{"--simulate", "--groups", "gpt-oss-12b"}, // no file, and no name
		{"--groups", "gpt-oss-120b"},              // no simulation
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
