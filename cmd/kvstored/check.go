package main

import (
	"context"
	"fmt"
	"io"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/remote"
)

func checkCommand() *cobra.Command {
	var connect bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration file and print what it means",
		Long: `Check a configuration file and print the effective configuration, with every
default and with the overrides of the environment; without a file, that of a
daemon that was given none. What is wrong is printed one problem a line, as
file:line:column: key.path: what is wrong. Comments below the configuration say
what it comes to on this machine, and what the daemon would miss here.

With --connect it also tries the remote tier, with everything the daemon needs
there: it puts a small object, reads, lists and deletes it. Credentials are
those this command finds, so run it as the daemon's user.`,
		Example: `  kvstored check kvstored.yaml
  kvstored check > kvstored.yaml   # all defaults, to edit`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := ""
			if len(args) == 1 {
				path = args[0]
			}
			cfg, err := loadConfig(path)
			if err != nil {
				return err
			}
			if err := cfg.Print(cmd.OutOrStdout()); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout())
			summarize(cmd.OutOrStdout(), &cfg)
			for _, text := range missing(&cfg) {
				fmt.Fprintln(cmd.OutOrStdout(), "# "+text)
			}
			if err := checkDisk(cmd.OutOrStdout(), &cfg.Disk); err != nil || !connect {
				return err
			}
			return checkRemote(cmd.Context(), cmd.OutOrStdout(), &cfg.Remote.S3)
		},
	}
	cmd.Flags().BoolVar(&connect, "connect", false, "try the remote tier too")
	return cmd
}

// checkDisk prints what the file systems do not allow of the disk tier.
func checkDisk(w io.Writer, c *config.Disk) error {
	for _, text := range diskLimits(c) {
		if _, err := fmt.Fprintln(w, "# disk tier: "+text); err != nil {
			return err
		}
	}
	return nil
}

// checkRemote tries the remote tier. What it prints are comments of the file
// printed before.
func checkRemote(ctx context.Context, w io.Writer, c *config.S3) error {
	if !c.Enabled() {
		_, err := fmt.Fprintln(w, "# remote tier: none; remote.s3.bucket is empty")
		return err
	}
	r, err := remote.New(remoteOptions(c, zerolog.Nop()))
	if err != nil {
		return err
	}
	defer r.Close()
	notes, err := r.Check(ctx)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", c.Bucket, err)
	}
	for _, n := range notes {
		fmt.Fprintln(w, "# remote tier:", n)
	}
	_, err = fmt.Fprintf(w, "# remote tier: bucket %s can be read, written, listed and deleted from\n", c.Bucket)
	return err
}
