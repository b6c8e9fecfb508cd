package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/human"
)

// The exit codes, as of kvstored. Scripts depend on them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitConfig      = 3
	exitUnreachable = 4 // no daemon there, it went away, or does not answer
)

// usageError is an error about how a command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(err error) error { return usageError{err} }

// failure is an error of a command that ran.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run executes one command line and returns its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	v := human.GetVersion()
	root := &cobra.Command{
		Use:   "kvstored-lab",
		Short: "Replays, simulations and estimates beside kvstored",
		Long: `kvstored-lab plays traces against a daemon, simulates what caches of other sizes
and policies would keep of them, and says the same of what the clients of a daemon
have asked for.

Exit codes: 0 done; 1 failed, a wrong byte, or an estimate that is not what was
measured; 2 wrong usage; 3 wrong configuration; 4 no daemon there, it went away,
or it does not answer.`,
		Version: v.Version, SilenceUsage: true, SilenceErrors: true,
	}
	root.SetVersionTemplate(fmt.Sprintf("kvstored-lab %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch))
	root.AddCommand(replayCommand(), whatIfCommand())
	for _, cmd := range root.Commands() {
		do := cmd.RunE
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := do(cmd, args); err != nil {
				return failure{err}
			}
			return nil
		}
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return exitOK
	}
	code := exitCode(err)
	fmt.Fprintln(stderr, "kvstored-lab:", err)
	switch code {
	case exitUsage:
		fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", cmd.CommandPath())
	case exitUnreachable:
		fmt.Fprintln(stderr, "Start it with 'kvstored serve', or say where it listens with --socket or KVSTORED_SOCKET.")
	}
	return code
}

func exitCode(err error) int {
	var (
		wrong    usageError
		ran      failure
		problems config.Errors
		network  *net.OpError
	)
	switch {
	case errors.As(err, &problems):
		return exitConfig
	case errors.As(err, &wrong), !errors.As(err, &ran):
		return exitUsage
	case errors.Is(err, client.ErrDisconnected), errors.Is(err, client.ErrNoAnswer), errors.Is(err, admin.ErrGone), errors.Is(err, admin.ErrNoAnswer),
		errors.As(err, &network) && network.Op == "dial":
		return exitUnreachable
	}
	return exitFailure
}

// socketFlag gives a command the flag that says where the daemon is.
func socketFlag(cmd *cobra.Command, socket *string) {
	cmd.Flags().StringVarP(socket, "socket", "s", config.DefaultSocket(), "the daemon's Unix socket; $KVSTORED_SOCKET sets the default")
}

// jsonFlag gives a command the flag for output that machines read.
func jsonFlag(cmd *cobra.Command, on *bool) {
	cmd.Flags().BoolVar(on, "json", false, "print one JSON object")
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
