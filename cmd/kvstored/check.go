package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/daemon"
)

const checkHelp = `Check a configuration file and print the effective configuration, with every
default and with the overrides of the environment; without a file, that of a
daemon that was given none. What is wrong is printed one problem a line, as
file:line:column: key.path: what is wrong. Comments below the configuration say
what it comes to on this machine.

It also tries what would keep serve from starting on this machine: addresses in
use, folders that are another daemon's, a password file or a group that is not
there. Each is an error, and the exit code is 1. So is what keeps the disk tier
from being opened (a full disk, missing rights), without which serve would start
and go on trying. What serve
would start with, but hardly as it was meant, is a warning. Both are printed on
standard error. Nothing is changed; with write.mode auto or back the speed of the
disk is measured, with up to 64 MiB in a file that is gone at once. What a user may do counts: run it as the
daemon's. --file-only leaves the machine out: for the configuration of another
machine, or of a daemon that runs.

With --connect it also tries the remote tier, with everything the daemon needs
there: it puts a small object, reads, lists and deletes it. While the daemon
runs, that takes both flags.

With --against-running it says what would change of the daemon that runs at
admin.socket: by a reload or by a restart, and whether that empties DRAM. It leaves out the rest that is of this machine.`

func checkCommand() *cobra.Command {
	var connect, fileOnly, against bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration, and whether the daemon would start with it here",
		Long:  checkHelp,
		Example: `  kvstored check kvstored.yaml
  kvstored check --file-only > kvstored.yaml   # all defaults, to edit`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := ""
			if len(args) == 1 {
				path = args[0]
			}
			cfg, err := loadConfig(path, !fileOnly)
			if err != nil {
				return err
			}
			if err := cfg.Print(cmd.OutOrStdout()); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout())
			errs, keeper := daemon.Problems(nil), ""
			if !fileOnly && !against {
				errs, keeper = daemon.Preflight(&cfg)
			}
			summarize(cmd.OutOrStdout(), &cfg, !fileOnly, keeper)
			if !fileOnly {
				checkStop(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), &cfg)
			}
			for _, text := range daemon.Warnings(&cfg, !fileOnly) {
				fmt.Fprintln(cmd.ErrOrStderr(), "kvstored: warning:", text)
			}
			if connect {
				err = checkRemote(cmd.Context(), cmd.OutOrStdout(), &cfg.Remote.S3)
			}
			if against && err == nil {
				err = againstRunning(cmd.Context(), cmd.OutOrStdout(), &cfg)
			}
			if len(errs) == 0 {
				return err
			}
			if err != nil {
				errs = append(errs, err)
			}
			return errs
		},
	}
	cmd.Flags().BoolVar(&connect, "connect", false, "try the remote tier too")
	cmd.Flags().BoolVar(&fileOnly, "file-only", false, "leave this machine out, and what would keep serve from starting here")
	cmd.Flags().BoolVar(&against, "against-running", false, "say what would change of the daemon that runs, and what that costs")
	return cmd
}

// checkRemote tries the remote tier. It prints comments of the file
// printed before.
func checkRemote(ctx context.Context, w io.Writer, c *config.S3) error {
	if !c.Enabled() {
		_, err := fmt.Fprintln(w, "# remote tier: none; remote.s3.bucket is empty")
		return err
	}
	notes, err := daemon.CheckRemote(ctx, c)
	if err != nil {
		return &exitError{exitFailure, fmt.Errorf("bucket %s: %w", c.Bucket, err)} // whatever could not be reached is no daemon
	}
	for _, n := range notes {
		fmt.Fprintln(w, "# remote tier:", n)
	}
	return nil
}
