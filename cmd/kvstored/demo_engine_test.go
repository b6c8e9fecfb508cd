package main

import (
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
