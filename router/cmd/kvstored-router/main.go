package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/version"
)

// The exit codes, as of kvstored. Scripts and the unit depend on them.
const (
	exitFailure = 1
	exitUsage   = 2
	exitConfig  = 3
)

// exitError is an error that says which code it means.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run executes one command line and returns its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal has its usual effect
	v := version.Get()
	root := &cobra.Command{
		Use:   "kvstored-router",
		Short: "A router for LLM engines with kvstored, and a bridge to ZeroMQ",
		Long: `kvstored-router says which of several engines a request should go to, by what is
cached where, and publishes the events of a daemon over ZeroMQ.

Exit codes: 0 done; 1 failed; 2 wrong usage; 3 wrong configuration.`,
		Version: v.Version, SilenceUsage: true, SilenceErrors: true,
	}
	root.SetVersionTemplate(fmt.Sprintf("kvstored-router %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch))
	root.AddCommand(serveCommand(), bridgeCommand())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var (
		exit     *exitError
		problems config.Errors
	)
	switch {
	case errors.As(err, &problems):
		fmt.Fprintln(stderr, problems) // each line names its place
		return exitConfig
	case errors.As(err, &exit):
		fmt.Fprintln(stderr, "kvstored-router:", err)
		return exit.code
	}
	fmt.Fprintf(stderr, "kvstored-router: %v\nRun '%s --help' for usage.\n", err, cmd.CommandPath())
	return exitUsage
}

// failed is the error of a command that ran.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitFailure, err}
}

// newLog is the log of a command, as of the daemon.
func newLog(w io.Writer, c config.Log) zerolog.Logger {
	if level, err := zerolog.ParseLevel(c.Level); err == nil { // it was checked
		zerolog.SetGlobalLevel(level)
	}
	zerolog.TimeFieldFormat = time.RFC3339Nano
	f, ok := w.(*os.File)
	terminal := ok && term.IsTerminal(int(f.Fd()))
	if c.Format == "console" || c.Format == "auto" && terminal {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly, NoColor: !terminal}
	}
	return zerolog.New(w).With().Timestamp().Logger()
}
