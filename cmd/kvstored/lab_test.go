package main

import (
	"strings"
	"testing"
)

// TestLabIsElsewhere: without the lab the error says how to get it, and the names of
// commands that moved lead to what does the same, not to themselves.
func TestLabIsElsewhere(t *testing.T) {
	t.Setenv("PATH", "")
	for line, says := range map[string]string{
		"lab whatif --json": "go -C lab build",
		"replay --trace x":  "call 'kvstored lab replay'",
		"whatif --help":     "call 'kvstored lab whatif'",
		"top":               "call 'kvstored stats --watch'",
		"route router.yaml": "call 'kvstored-router serve'",
		"serve --take-over": "serve --keeper",
	} {
		if code, _, errs := kvstored(t, "", strings.Fields(line)...); code == exitOK || !strings.Contains(errs, says) || strings.Contains(errs, "whatif --help") {
			t.Errorf("%s: exit code %d, %s", line, code, errs)
		}
	}
}
