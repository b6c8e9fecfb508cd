package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/daemon"
	"github.com/kvstored/kvstored/internal/fdstore"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/socket"
)

func serveCommand() *cobra.Command {
	var path string
	var keeper bool
	cmd := &cobra.Command{
		Use:   "serve [FILE]",
		Short: "Run the daemon",
		Long: `Run the daemon until SIGTERM or SIGINT: then it lets go of its clients, writes
what is unwritten to disk and ends. A second signal ends it at once. SIGHUP has
it read its configuration file again and apply what can change meanwhile; the
log says what was applied, what takes a restart, and what is wrong. Without a
file it has 4 GiB of DRAM and up to 50 GiB of disk; 'kvstored check' prints all
settings. Each can be overridden by the environment, such as
KVSTORED_CPU__CAPACITY=8GiB.

With --keeper it is no daemon, but holds the memory of DRAM and the listening
sockets for the daemon with this configuration, which needs cpu.keep: true. The
next daemon finds all of DRAM after a stop, an upgrade, a crash or a kill, and
connects wait meanwhile. Start it before the daemon, as the same user, as a
process, unit or container of its own, and leave it running: when it ends, what
it holds goes with the daemon again. Under systemd it is not needed: the unit's
FileDescriptorStoreMax= does the same.`,
		Example: `  kvstored serve --config kvstored.yaml
  KVSTORED_CPU__CAPACITY=1GiB KVSTORED_DISK__CAPACITY=0 kvstored serve
  kvstored serve --config kvstored.yaml --keeper    # before the daemon, beside it`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				path = args[0]
			}
			if keeper {
				return runKeeper(cmd, path)
			}
			// SIGHUP asks for a reload and ends no daemon, also not one that starts or stops. Of
			// several at once one is enough: each reload reads the file as it is then.
			hup := make(chan os.Signal, 1)
			signal.Notify(hup, syscall.SIGHUP) // before anything that takes time
			cfg, err := loadConfig(path, true)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cmd.ErrOrStderr(), cfg, daemon.Options{File: path, Hangups: hup})
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", os.Getenv("KVSTORED_CONFIG"), "configuration file; $KVSTORED_CONFIG sets the default; none = the defaults")
	cmd.Flags().BoolVar(&keeper, "keeper", false, "hold DRAM and the sockets of the daemon while it restarts, and do nothing else")
	return cmd
}

// loadConfig reads and checks a configuration for this user, and where it is to
// be used here, for the memory there is.
func loadConfig(path string, here bool) (config.Config, error) {
	rules, err := daemon.Rules(here)
	if err != nil {
		return config.Config{}, err
	}
	cfg, err := config.Load(path, os.Environ(), rules)
	if err != nil { // one that cannot be read is as invalid as one that is wrong
		return cfg, &exitError{exitConfig, err}
	}
	return cfg, nil
}

// serve runs the daemon until a signal or a failure; its log goes to w.
func serve(ctx context.Context, w io.Writer, cfg config.Config, o daemon.Options) error {
	log, lines := startLog(w, cfg.Log)
	defer lines.Close()
	logStart(&log, &cfg, o.File)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal has its usual effect
	for _, text := range daemon.Warnings(&cfg, true) {
		log.Warn().Msg(text)
	}
	o.Log, o.LostLines = log, lines.Lost
	d, err := daemon.New(cfg, o)
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

// runKeeper holds what daemons with a configuration give it until a signal.
func runKeeper(cmd *cobra.Command, path string) error {
	cfg, err := loadConfig(path, false)
	if err != nil {
		return err
	}
	if !cfg.CPU.Keep {
		return &exitError{exitConfig, errors.New("cpu.keep: false, so that the daemon gives its memory to none; set it to true")}
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal has its usual effect
	l, err := socket.Bind(cfg.KeeperSocket(), 0o600, "")
	if err != nil {
		return err
	}
	log, lines := startLog(cmd.ErrOrStderr(), cfg.Log)
	defer lines.Close()
	log.Info().Str("socket", cfg.KeeperSocket()).Msg("keeping the memory and the sockets of the daemon")
	go l.Watch(ctx, &log)
	err = (&fdstore.Server{Log: log}).Serve(ctx, l)
	return errors.Join(err, socket.Unlisten(cfg.KeeperSocket(), l.Own()))
}

// logStart notes which program starts, and with which settings besides the defaults.
func logStart(log *zerolog.Logger, cfg *config.Config, file string) {
	defaults, set := config.Default(), zerolog.Arr()
	for _, c := range config.Compare(&defaults, cfg) {
		set.Str(c.Path + ": " + c.New)
	}
	log.Info().Str("version", human.VersionText()).Str("go", runtime.Version()).Str("file", file).Array("settings", set).Msg("starting")
}

// startLog begins the log of a command that runs until it is stopped. A reader that leaves
// ends none.
func startLog(w io.Writer, c config.Log) (zerolog.Logger, *human.LogQueue) {
	daemon.SetLogLevel(c.Level) // of all loggers, so that it can change
	human.SurvivePipes()
	return human.StartLog(w, c.Format)
}
