package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/version"
)

func versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return printJSON(cmd.OutOrStdout(), version.Get())
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine(version.Get()))
			return err
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// versionLine is what `kvstored version` and `kvstored --version` print.
func versionLine(v version.Info) string {
	commit := ""
	if v.Commit != "" {
		commit = "commit " + v.Commit + ", "
	}
	if v.Modified {
		commit += "with changes, "
	}
	return fmt.Sprintf("kvstored %s (%s%s, %s/%s)", v.Version, commit, v.Go, v.OS, v.Arch)
}
