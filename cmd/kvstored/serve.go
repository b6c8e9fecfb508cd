package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/policy"
)

func serveCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "serve [FILE]",
		Short: "Run the daemon",
		Long: `Run the daemon until SIGTERM or SIGINT: then it lets go of its clients, writes
what is unwritten to disk and ends. A second signal ends it at once. Without a
file it has 4 GiB of DRAM and up to 50 GiB of disk; 'kvstored check' prints all
settings. Each can be overridden by the environment, such as
KVSTORED_CPU__CAPACITY=8GiB.`,
		Example: `  kvstored serve --config kvstored.yaml
  KVSTORED_CPU__CAPACITY=1GiB KVSTORED_DISK__CAPACITY=0 kvstored serve`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				path = args[0]
			}
			cfg, err := loadConfig(path, true)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cfg)
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", os.Getenv("KVSTORED_CONFIG"), "configuration file; $KVSTORED_CONFIG sets the default; none = the defaults")
	return cmd
}

// loadConfig reads and checks a configuration for this user, and where it is to
// be used here, for the memory there is.
func loadConfig(path string, here bool) (config.Config, error) {
	rules := config.Rules{Policies: policy.All(), UID: os.Geteuid()}
	if here {
		var err error
		rules.MemoryBytes, rules.MemoryFrom, err = arena.MemoryLimit()
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return config.Config{}, fmt.Errorf("how much memory there is: %w", err)
		}
	}
	cfg, err := config.Load(path, os.Environ(), rules)
	if err != nil { // one that cannot be read is as invalid as one that is wrong
		return cfg, &exitError{exitConfig, err}
	}
	return cfg, nil
}

// serve runs the daemon until a signal or a failure.
func serve(ctx context.Context, cfg config.Config) error {
	log, err := newLog(cfg.Log)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal has its usual effect
	for _, text := range doubts(&cfg, true) {
		log.Warn().Msg(text)
	}
	d, err := newDaemon(cfg, log)
	if err != nil {
		return err
	}
	return d.run(ctx)
}

func newLog(c config.Log) (zerolog.Logger, error) {
	level, err := zerolog.ParseLevel(c.Level)
	if err != nil {
		return zerolog.Logger{}, fmt.Errorf("log.level: %w", err)
	}
	zerolog.TimeFieldFormat = time.RFC3339Nano
	console := c.Format == "console" || c.Format == "auto" && term.IsTerminal(int(os.Stderr.Fd()))
	if console {
		w := zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.TimeOnly}
		return zerolog.New(w).Level(level).With().Timestamp().Logger(), nil
	}
	return zerolog.New(os.Stderr).Level(level).With().Timestamp().Logger(), nil
}
