package main

import (
	"strings"
	"testing"
)

// TestPromote: lookup --promote says what is in DRAM already, and refuses wrong questions.
func TestPromote(t *testing.T) {
	socket := serveHere(t).socket
	prompt := []string{"-s", socket, "--text", strings.Repeat("warm me ", 100)}
	payload := write(t, strings.Repeat("x", 8192))
	if code, _, errs := kvstored(t, "", append([]string{"put", payload}, prompt...)...); code != exitOK {
		t.Fatalf("put: %d, %s", code, errs)
	}
	r := read[promotedResult](t, append([]string{"lookup", "--promote"}, prompt...)...)
	if r.ReadyChunks != 4 || r.Tiers["cpu"].Chunks != 4 || !r.Done || r.Reason != "ok" {
		t.Errorf("warmed %+v", r)
	}
	if out := must(t, "", append([]string{"lookup", "--promote"}, prompt...)...); !strings.Contains(out, "were in DRAM") {
		t.Errorf("again: %q", out)
	}
	for name, args := range map[string][]string{
		"no prompt":       {"lookup", "--promote", "-s", socket},
		"two prompts":     {"lookup", "--promote", "-s", socket, "--text", "x", "--lookup-id", "y"},
		"no time":         {"lookup", "--promote", "-s", socket, "--text", "x", "--wait", "0s"},
		"only looked up":  {"lookup", "-s", socket, "--lookup-id", "y"},
		"an empty prompt": {"lookup", "--promote", "-s", socket, "--tokens", ","},
	} {
		if code, _, errs := kvstored(t, "", args...); code != exitUsage || errs == "" {
			t.Errorf("%s: %d, %q", name, code, errs)
		}
	}
	if code, _, errs := kvstored(t, "", "lookup", "--promote", "-s", socket, "--lookup-id", "nobody"); code != exitFailure || !strings.Contains(errs, "nobody") {
		t.Errorf("an unknown name: %d, %q", code, errs)
	}
}
