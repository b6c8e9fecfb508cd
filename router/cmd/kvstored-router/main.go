package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/human"
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
	v := human.GetVersion()
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
	text, code := fmt.Appendf(nil, "kvstored-router: %v\n", err), exitUsage
	switch {
	case errors.As(err, &problems):
		text, code = fmt.Appendln(nil, problems), exitConfig // each line names its place
	case errors.As(err, &exit):
		code = exit.code
	default:
		text = fmt.Appendf(text, "Run '%s --help' for usage.\n", cmd.CommandPath())
	}
	human.LastWords(stderr, text)
	return code
}

// failed is the error of a command that ran.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitFailure, err}
}

// startLog begins the log of a command, as of the daemon. A reader that leaves ends none.
func startLog(c config.Log) (zerolog.Logger, *human.LogQueue) {
	if level, err := zerolog.ParseLevel(c.Level); err == nil { // it was checked
		zerolog.SetGlobalLevel(level)
	}
	human.SurvivePipes()
	return human.StartLog(os.Stderr, c.Format)
}
