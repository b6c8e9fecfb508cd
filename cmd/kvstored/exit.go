package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
)

// The exit codes. Scripts depend on them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitConfig      = 3
	exitUnreachable = 4 // no daemon there, it went away, or does not answer
)

// exitError is an error that says which code it means.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usage is an error about how the command was called.
func usage(err error) error { return &exitError{exitUsage, err} }

// failure is an error of a command that ran.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// markFailures tells what a command returned from what cobra found wrong with
// the command line before.
func markFailures(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := run(cmd, args); err != nil {
				return failure{err}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		markFailures(sub)
	}
}

func exitCode(err error) int {
	var (
		exit     *exitError
		ran      failure
		problems config.Errors
		network  *net.OpError
	)
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &problems):
		return exitConfig
	case !errors.As(err, &ran):
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitFailure
	case errors.Is(err, client.ErrDisconnected), errors.Is(err, client.ErrNoAnswer), errors.Is(err, admin.ErrGone), errors.Is(err, admin.ErrNoAnswer),
		errors.As(err, &network) && network.Op == "dial":
		return exitUnreachable
	}
	return exitFailure
}

// flagError says in words what a flag wants, where the error of its value is Go's.
func flagError(err error) error {
	text, why, found := strings.Cut(err.Error(), " flag: ")
	switch {
	case why == "--take-over":
		return fmt.Errorf("%w; a stop and a start keep DRAM and the sockets with cpu.keep: true, see serve --keeper", err)
	case why == "--against-running":
		return fmt.Errorf("%w; it is --running now", err)
	case found && strings.HasPrefix(why, "time: "):
		return fmt.Errorf("%s flag: give a time with its unit, as 5s or 2m", text)
	case found && strings.HasPrefix(why, "strconv."):
		return fmt.Errorf("%s flag: give a number, true or false", text)
	}
	return err
}

// groupError says in words which flags do not go together, where the error is cobra's.
func groupError(text string) string {
	if _, flags, ok := strings.Cut(strings.TrimSuffix(text, "] were all set"), "none of the others can be; ["); ok {
		return "--" + strings.ReplaceAll(flags, " ", " and --") + " do not go together"
	}
	if flags, ok := strings.CutPrefix(strings.TrimSuffix(text, "] is required"), "at least one of the flags in the group ["); ok {
		return "give one of --" + strings.ReplaceAll(flags, " ", ", --")
	}
	return text
}
