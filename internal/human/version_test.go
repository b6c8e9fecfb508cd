package human

import (
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

func TestNumber(t *testing.T) {
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`).MatchString(VersionNumber) {
		t.Errorf("%s is no semantic version", VersionNumber)
	}
}

// TestInfo: the commit comes from a checkout's record, or from the version that
// `go install module@commit` gives the module.
func TestInfo(t *testing.T) {
	const commit = "1f0c2a9b77d3e4f5061728394a5b6c7d8e9f0a1b"
	of := func(version string, settings ...string) *debug.BuildInfo {
		b := &debug.BuildInfo{Main: debug.Module{Version: version}}
		for i := 0; i < len(settings); i += 2 {
			b.Settings = append(b.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return b
	}
	for name, tt := range map[string]struct {
		record *debug.BuildInfo
		want   string
	}{
		"no record":         {nil, VersionNumber},
		"no repository":     {of("(devel)"), VersionNumber},
		"a release":         {of(VersionNumber), VersionNumber},
		"a checkout":        {of("(devel)", "vcs.revision", commit, "vcs.modified", "false"), VersionNumber + "+1f0c2a9b77d3"},
		"a changed one":     {of("v0.0.0-20261123001500-1f0c2a9b77d3+dirty", "vcs.revision", commit, "vcs.modified", "true"), VersionNumber + "+1f0c2a9b77d3.modified"},
		"a commit":          {of("v0.1.1-0.20261123001500-1f0c2a9b77d3"), VersionNumber + "+1f0c2a9b77d3"},
		"before a release":  {of("v0.0.0-20261123001500-1f0c2a9b77d3"), VersionNumber + "+1f0c2a9b77d3"},
		"a short revision":  {of("", "vcs.revision", "1f0c"), VersionNumber + "+1f0c"},
		"another's release": {of("v9.9.9"), VersionNumber},
	} {
		if got := infoOf(tt.record).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// TestPython: the Python client has the same number.
func TestPython(t *testing.T) {
	text, err := os.ReadFile("../../clients/python/src/kvstored/_version.py")
	if err != nil {
		t.Fatal(err)
	}
	if want := `__version__ = "` + strings.TrimPrefix(VersionNumber, "v") + `"`; !strings.Contains(string(text), "\n"+want+"\n") {
		t.Errorf("the Python client has no line %s", want)
	}
}
