package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/human"
)

func versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, human.GetVersion(), func(w io.Writer) error {
				_, err := fmt.Fprintln(w, versionLine(human.GetVersion()))
				return err
			})
		},
	}
	jsonFlag(cmd)
	return cmd
}

// versionLine is what `kvstored version` and `kvstored --version` print.
func versionLine(v human.Version) string {
	commit := ""
	if v.Commit != "" {
		commit = "commit " + v.Commit + ", "
	}
	if v.Modified {
		commit += "with changes, "
	}
	return fmt.Sprintf("kvstored %s (%s%s, %s/%s)", v.Version, commit, v.Go, v.OS, v.Arch)
}
