package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestWarm(t *testing.T) {
	socket := startDaemon(t)
	prompt := []string{"-s", socket, "--text", strings.Repeat("warm me ", 100)}
	payload := write(t, strings.Repeat("x", 8192))
	if code, _, errs := kvstored(t, "", append([]string{"put", payload}, prompt...)...); code != exitOK {
		t.Fatalf("put: %d, %s", code, errs)
	}
	if code, _, errs := kvstored(t, "", "flush", "-s", socket); code != exitOK {
		t.Fatalf("flush: %d, %s", code, errs)
	}
	if code, _, errs := kvstored(t, "", "clear", "-s", socket, "--yes", "cpu"); code != exitOK {
		t.Fatalf("clear: %d, %s", code, errs)
	}
	code, out, errs := kvstored(t, "", append([]string{"warm", "--json"}, prompt...)...)
	var r warmResult
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitOK {
		t.Fatalf("warm: %d, %q, %s, %v", code, out, errs, err)
	}
	if r.ReadyChunks != 4 || r.Tiers["disk"].Chunks != 4 || !r.Done || r.Reason != "ok" {
		t.Errorf("warmed %+v", r)
	}
	if code, out, _ := kvstored(t, "", append([]string{"warm"}, prompt...)...); code != exitOK || !strings.Contains(out, "were in DRAM") {
		t.Errorf("again: %d, %q", code, out)
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
