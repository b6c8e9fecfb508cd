package main

import (
	"strings"
	"testing"
)

// TestWarm: warm says what is in DRAM already, and refuses wrong questions.
func TestWarm(t *testing.T) {
	socket := serveHere(t).socket
	prompt := []string{"-s", socket, "--text", strings.Repeat("warm me ", 100)}
	payload := write(t, strings.Repeat("x", 8192))
	if code, _, errs := kvstored(t, "", append([]string{"put", payload}, prompt...)...); code != exitOK {
		t.Fatalf("put: %d, %s", code, errs)
	}
	r := read[warmResult](t, append([]string{"warm"}, prompt...)...)
	if r.ReadyChunks != 4 || r.Tiers["cpu"].Chunks != 4 || !r.Done || r.Reason != "ok" {
		t.Errorf("warmed %+v", r)
	}
	if out := must(t, "", append([]string{"warm"}, prompt...)...); !strings.Contains(out, "were in DRAM") {
		t.Errorf("again: %q", out)
	}
	for name, args := range map[string][]string{
		"no prompt":       {"warm", "-s", socket},
		"two prompts":     {"warm", "-s", socket, "--text", "x", "--lookup-id", "y"},
		"no time":         {"warm", "-s", socket, "--text", "x", "--wait", "0s"},
		"an empty prompt": {"warm", "-s", socket, "--tokens", ","},
	} {
		if code, _, errs := kvstored(t, "", args...); code != exitUsage || errs == "" {
			t.Errorf("%s: %d, %q", name, code, errs)
		}
	}
	if code, _, errs := kvstored(t, "", "warm", "-s", socket, "--lookup-id", "nobody"); code != exitFailure || !strings.Contains(errs, "nobody") {
		t.Errorf("an unknown name: %d, %q", code, errs)
	}
}
