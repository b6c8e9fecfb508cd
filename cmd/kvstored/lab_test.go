package main

import (
	"strings"
	"testing"
)

// TestLabIsElsewhere: without the lab the error says how to get it, and the names of its
// commands lead there.
func TestLabIsElsewhere(t *testing.T) {
	t.Setenv("PATH", "")
	for line, says := range map[string]string{
		"lab whatif --json": "go -C lab build",
		"replay --trace x":  "call 'kvstored lab replay'",
		"whatif":            "call 'kvstored lab whatif'",
	} {
		if code, _, errs := kvstored(t, "", strings.Fields(line)...); code == exitOK || !strings.Contains(errs, says) {
			t.Errorf("%s: exit code %d, %s", line, code, errs)
		}
	}
}
