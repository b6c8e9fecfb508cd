package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestMan: each command has a page with all that its --help says, and the pages
// are what the formatter knows.
func TestMan(t *testing.T) {
	dir := t.TempDir()
	must(t, "", "man", dir)
	eachCommand(rootCommand(), func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() && cmd.HasParent() {
			return
		}
		page, err := os.ReadFile(filepath.Join(dir, manName(cmd)+".1"))
		if err != nil {
			t.Errorf("%s: %v", cmd.CommandPath(), err)
			return
		}
		if !strings.Contains(string(page), roff(cmd.Short)) {
			t.Errorf("%s's page does not say %q", cmd.CommandPath(), cmd.Short)
		}
		for line := range strings.Lines(cmd.Long) {
			if !strings.Contains(string(page), roff(strings.TrimSuffix(line, "\n"))) {
				t.Errorf("%s's page lacks %q", cmd.CommandPath(), line)
			}
		}
	})
	manRenders(t, dir)
}

// manRenders has groff read the pages, where there is one: groff warns of unknown
// macros.
func manRenders(t *testing.T, dir string) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Log("no groff: the pages were not rendered")
		return
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	for _, page := range pages {
		out, err := exec.Command(groff, "-man", "-Tutf8", "-ww", "-z", page).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", filepath.Base(page), err, out)
		}
	}
}

// TestManOfText: text that roff would take for its own comes out as it went in.
func TestManOfText(t *testing.T) {
	for text, want := range map[string]string{
		"plain":       "plain",
		".TH breaks":  `\&.TH breaks`,
		"'quoted'":    `\&'quoted'`,
		`C:\dir`:      `C:\edir`,
		"--json a-b":  `\-\-json a\-b`,
		"  .indented": "  .indented",
	} {
		if got := roff(text); got != want {
			t.Errorf("roff(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestManNowhere: a folder that is not there is an error that names it.
func TestManNowhere(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	fails(t, exitFailure, missing, "man", missing)
	fails(t, exitUsage, "1 arg", "man")
}
