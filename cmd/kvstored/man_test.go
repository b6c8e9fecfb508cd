package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestMan: each command has a page with all that its --help says.
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
