package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/internal/cli/version"
)

// TestVersion: the command and the flag say the same.
func TestVersion(t *testing.T) {
	out := must(t, "", "version")
	if !strings.HasPrefix(out, "kvstored "+version.Number+" (") || !strings.Contains(out, version.Get().Go) {
		t.Errorf("version says %q", out)
	}
	if flag := must(t, "", "--version"); flag != out {
		t.Errorf("--version says %q, version %q", flag, out)
	}
	var v version.Info
	if err := json.Unmarshal([]byte(must(t, "", "version", "--json")), &v); err != nil || v != version.Get() {
		t.Errorf("version --json: %+v, %v", v, err)
	}
	for want, info := range map[string]version.Info{
		"kvstored v0.1.0 (commit 1f0c, go1, linux/amd64)":               {Version: "v0.1.0", Commit: "1f0c", Go: "go1", OS: "linux", Arch: "amd64"},
		"kvstored v0.1.0 (commit 1f0c, with changes, go1, linux/amd64)": {Version: "v0.1.0", Commit: "1f0c", Modified: true, Go: "go1", OS: "linux", Arch: "amd64"},
		"kvstored v0.1.0 (go1, linux/amd64)":                            {Version: "v0.1.0", Go: "go1", OS: "linux", Arch: "amd64"},
	} {
		if got := versionLine(info); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
