package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestEngineFlags: what does not fit is wrong usage.
func TestEngineFlags(t *testing.T) {
	for line, says := range map[string]string{
		"--engine --users 0":                       "--users",
		"--engine --users 65":                      "at most 64 --users",
		"--engine --turns 12":                      "11 --turns",
		"--engine --turns x":                       "--turns",
		"--engine --prefill-tokens-per-second 100": "--prefill-tokens-per-second",
		"--yes":          "--yes is for demo --engine",
		"--engine=llama": "--engine",
		"--engine vllm":  "vllm",
	} {
		if code, _, errs := kvstored(t, "", append([]string{"demo"}, strings.Fields(line)...)...); code != exitUsage || !strings.Contains(errs, says) {
			t.Errorf("%s: exit code %d, %q; want %q", line, code, errs, says)
		}
	}
}

// TestAsk: only a yes is one, and the end of ctx is waited for no longer.
func TestAsk(t *testing.T) {
	for answer, want := range map[string]error{
		"y\n": nil, " YES \n": nil, "yes": nil, "": errNo, "\n": errNo, "n\n": errNo, "yess\n": errNo, "\ny\n": errNo,
	} {
		if err := ask(t.Context(), strings.NewReader(answer), io.Discard); !errors.Is(err, want) {
			t.Errorf("%q: %v", answer, err)
		}
	}
	never, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ask(ctx, never, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
