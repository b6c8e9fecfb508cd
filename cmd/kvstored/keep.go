package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/keep"
	"github.com/kvstored/kvstored/internal/socket"
)

func keepCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "keep [FILE]",
		Short: "Keep the memory of a daemon while it restarts",
		Long: `Hold the memory of DRAM for the daemon with this configuration, so that the
daemon finds it again after a stop, an upgrade, a crash or a kill. It listens
beside listen.socket, for a daemon of its own user that has upgrade.hand_over:
true, and does nothing else. Start it before the daemon, as the same user, and
leave it running: when it ends, the memory goes with the daemon again.

Under systemd it is not needed: the unit's FileDescriptorStoreMax= keeps the
memory.`,
		Example: `  kvstored keep --config kvstored.yaml &
  kvstored serve --config kvstored.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				path = args[0]
			}
			cfg, err := loadConfig(path, false)
			if err != nil {
				return err
			}
			if !cfg.Upgrade.HandOver {
				return &exitError{exitConfig, errors.New("upgrade.hand_over: false, so that the daemon gives its memory to none; set it to true")}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal has its usual effect
			return keepAt(ctx, cfg.KeeperSocket(), newLog(cmd.ErrOrStderr(), cfg.Log))
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", os.Getenv("KVSTORED_CONFIG"), "configuration file of the daemon; $KVSTORED_CONFIG sets the default")
	return cmd
}

// keepAt keeps descriptors for daemons that connect to path, until ctx ends.
func keepAt(ctx context.Context, path string, log zerolog.Logger) error {
	l, err := socket.Listen(path, 0o600, "")
	if err != nil {
		return err
	}
	own, err := os.Stat(path)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	log.Info().Str("socket", path).Msg("keeping the memory of the daemon")
	server := &keep.Server{Log: log}
	return errors.Join(server.Serve(ctx, l), socket.Unlisten(path, own))
}
