package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/internal/human"
)

// TestVersion: the command and the flag say the same.
func TestVersion(t *testing.T) {
	out := must(t, "", "version")
	if !strings.HasPrefix(out, "kvstored "+human.VersionNumber+" (") || !strings.Contains(out, human.GetVersion().Go) {
		t.Errorf("version says %q", out)
	}
	if flag := must(t, "", "--version"); flag != out {
		t.Errorf("--version says %q, version %q", flag, out)
	}
	var v human.Version
	if err := json.Unmarshal([]byte(must(t, "", "version", "--json")), &v); err != nil || v != human.GetVersion() {
		t.Errorf("version --json: %+v, %v", v, err)
	}
	for want, info := range map[string]human.Version{
		"kvstored v0.1.0 (commit 1f0c, go1, linux/amd64)":               {Version: "v0.1.0", Commit: "1f0c", Go: "go1", OS: "linux", Arch: "amd64"},
		"kvstored v0.1.0 (commit 1f0c, with changes, go1, linux/amd64)": {Version: "v0.1.0", Commit: "1f0c", Modified: true, Go: "go1", OS: "linux", Arch: "amd64"},
		"kvstored v0.1.0 (go1, linux/amd64)":                            {Version: "v0.1.0", Go: "go1", OS: "linux", Arch: "amd64"},
	} {
		if got := versionLine(info); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
