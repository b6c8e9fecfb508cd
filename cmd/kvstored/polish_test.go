package main

import (
	"strings"
	"testing"
)

// TestDryRuns: dry runs of clear and delete count chunks, and forget none; DRAM is
// understood as cpu.
func TestDryRuns(t *testing.T) {
	t.Setenv("KVSTORED_SOCKET", startDaemon(t))
	must(t, kv(1, 2), prompt("put", 1, 2)...)
	if out := must(t, "", "clear", "dram", "--dry-run"); !strings.Contains(out, "would be forgotten") || !strings.Contains(out, "2") {
		t.Errorf("clear:\n%s", out)
	}
	if got := read[struct {
		Chunks map[string]int64 `json:"chunks"`
	}](t, "clear", "DRAM", "--dry-run").Chunks; got["cpu"] != 2 || len(got) != 1 {
		t.Errorf("clear: %v", got)
	}
	if out := must(t, "", prompt("delete", 1, 2, "--dry-run")...); !strings.HasPrefix(out, "2 chunks would be deleted") {
		t.Errorf("delete: %s", out)
	}
	if got := must(t, "", prompt("get", 1, 2)...); got != kv(1, 2) {
		t.Errorf("%d bytes are left", len(got))
	}
	if out := must(t, "", "policy", "set", "DRAM", "s3fifo"); !strings.Contains(out, "s3fifo") {
		t.Errorf("policy set DRAM: %s", out)
	}
	fails(t, exitUsage, "none of the others", "clear", "--yes", "--dry-run")
	fails(t, exitFailure, "no remote tier", "clear", "remote", "--dry-run")
	fails(t, exitUsage, "is no tier", "clear", "tape", "--dry-run")
	fails(t, exitUsage, "invalid argument", "clear", "--dry-run=2")
	fails(t, exitUsage, "at least one", "delete", "--dry-run")
}

// TestCompletion: a shell is told policies, tiers and orders.
func TestCompletion(t *testing.T) {
	for line, want := range map[string][]string{
		"policy set ":     {"cpu", "disk"},
		"policy set cpu ": {"lru", "s3fifo"},
		"clear ":          {"cpu", "disk", "remote"},
		"clear disk ":     {"cpu", "remote"},
		"ls --by ":        {"bytes", "heat"},
	} {
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		out := must(t, "", args...)
		for _, text := range want {
			if !strings.Contains(out, text+"\n") {
				t.Errorf("%q: no %s in\n%s", line, text, out)
			}
		}
		if strings.Contains(line, "clear disk") && strings.Contains(out, "disk\n") {
			t.Errorf("%q: disk once more", line)
		}
	}
}
