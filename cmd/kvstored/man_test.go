package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/kvstored/kvstored/internal/human"
)

var manFolder = flag.String("man", "", "folder that TestMan writes the manual pages to")

// TestMan: each command has a manual page. A release writes them with
//
//	SOURCE_DATE_EPOCH=0 go test ./cmd/kvstored -run '^TestMan$' -man FOLDER
func TestMan(t *testing.T) {
	folder := *manFolder
	if folder == "" {
		folder = t.TempDir()
	}
	root := rootCommand()
	root.DisableAutoGenTag = true
	if err := doc.GenManTree(root, &doc.GenManHeader{Source: "kvstored " + human.VersionNumber, Manual: "kvstored"}, folder); err != nil {
		t.Fatal(err)
	}
	eachCommand(root, func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() && cmd.HasParent() {
			return
		}
		page := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		if _, err := os.Stat(filepath.Join(folder, page)); err != nil {
			t.Error(err)
		}
	})
}
