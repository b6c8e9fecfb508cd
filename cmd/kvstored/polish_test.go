package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/internal/admin"
)

// TestDryRuns: dry runs of forget count chunks, and forget none; DRAM is
// understood as cpu.
func TestDryRuns(t *testing.T) {
	serveHere(t)
	must(t, kv(1, 2), prompt("put", 1, 2)...)
	if out := must(t, "", "forget", "--tier", "dram", "--dry-run"); out != "cpu: 2 chunks would be forgotten\n" {
		t.Errorf("forget:\n%s", out)
	}
	if got := read[forgotten](t, "forget", "--tier", "DRAM", "--dry-run").Tiers; got["cpu"] != 2 || len(got) != 1 {
		t.Errorf("forget: %v", got)
	}
	if out := must(t, "", prompt("forget", 1, 2, "--dry-run")...); !strings.HasPrefix(out, "2 chunks would be forgotten") {
		t.Errorf("forget: %s", out)
	}
	for _, more := range [][]string{{"--dry-run"}, {"--yes"}} {
		code, out, errs := kvstored(t, "", prompt("forget", 1, 2, append(more, "--model", "unknown")...)...)
		if code != exitFailure || out != "" || !strings.Contains(errs, "were model, dtype, chunk tokens and salt the same?") {
			t.Errorf("forget in a space that nobody uses: exit code %d, %s%s", code, out, errs)
		}
	}
	shut := closedFile(t)
	if code := run(prompt("forget", 1, 2, "--dry-run"), nil, shut, io.Discard); code != exitFailure {
		t.Errorf("forget that cannot say how many: exit code %d", code)
	}
	if got := must(t, "", prompt("get", 1, 2)...); got != kv(1, 2) {
		t.Errorf("%d bytes are left", len(got))
	}
	if out := must(t, "", "policy", "set", "DRAM", "s3fifo"); !strings.Contains(out, "s3fifo") {
		t.Errorf("policy set DRAM: %s", out)
	}
	fails(t, exitUsage, "add --yes if that is meant, or --dry-run", "forget", "--tier", "cpu")
	fails(t, exitUsage, "kvstored: --dry-run and --yes do not go together\n", "forget", "--tier", "cpu", "--yes", "--dry-run")
	fails(t, exitFailure, "no remote tier", "forget", "--tier", "remote", "--dry-run")
	fails(t, exitUsage, "is no tier", "forget", "--tier", "tape", "--dry-run")
	fails(t, exitUsage, "invalid argument", "forget", "--tier", "cpu", "--dry-run=2")
	fails(t, exitUsage, "kvstored: give one of --tokens, --tokens-file, --text, --space, --tier, --distrust\n", "forget", "--dry-run")
}

// closedFile returns a file that is closed.
func closedFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "closed"))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	return f
}

// TestCompletionFromDaemon: a shell is told spaces, pins and prefixes that the daemon has, and
// nothing where there is none.
func TestCompletionFromDaemon(t *testing.T) {
	complete := func(line ...string) []string {
		out := strings.Split(must(t, "", append([]string{"__complete"}, line...)...), "\n")
		return slices.DeleteFunc(out, func(s string) bool { return s == "" || s[0] == ':' || strings.HasPrefix(s, "Completion ended") })
	}
	t.Setenv("KVSTORED_SOCKET", filepath.Join(t.TempDir(), "none"))
	for _, line := range [][]string{{"forget", "--space", ""}, {"list", "claims", "--revoke", ""}, {"list", "prefixes", ""}, {"list", "prefixes", "--space", ""}, {"why", "--space", ""}} {
		if got := complete(line...); len(got) != 0 {
			t.Errorf("without a daemon %q: %q", line, got)
		}
	}
	serveHere(t)
	must(t, kv(1, 1), prompt("put", 1, 1)...)
	space := read[struct{ Spaces []admin.Space }](t, "list", "spaces", "--json").Spaces[0]
	hash := read[admin.Prefixes](t, "list", "prefixes", "--json").Prefixes[0].Hash
	for _, c := range []struct {
		line []string
		want string
	}{
		{[]string{"forget", "--space", ""}, space.Space + "\t" + space.Opened.Model},
		{[]string{"list", "prefixes", "--space", ""}, space.Space + "\t" + space.Opened.Model},
		{[]string{"why", "--space", ""}, space.Space + "\t" + space.Opened.Model},
		{[]string{"list", "prefixes", ""}, hash[:10]},
	} {
		got := complete(c.line...)
		for i := 0; len(got) == 0 && i < 30; i++ { // the daemon has a second to answer, which a busy machine may take
			got = complete(c.line...)
		}
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("%q: %q, want %q", c.line, got, c.want)
		}
	}
	if got := complete("list", "prefixes", hash[:10], ""); len(got) != 0 {
		t.Errorf("a second prefix: %q", got)
	}
}

// TestCompletion: a shell is told policies, tiers and orders.
func TestCompletion(t *testing.T) {
	for line, want := range map[string][]string{
		"policy set ":         {"cpu", "disk"},
		"policy set cpu ":     {"lru", "s3fifo"},
		"forget --tier ":      {"cpu", "disk", "remote"},
		"list prefixes --by ": {"bytes", "heat"},
	} {
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		out := must(t, "", args...)
		for _, text := range want {
			if !strings.Contains(out, text+"\n") {
				t.Errorf("%q: no %s in\n%s", line, text, out)
			}
		}
	}
}
