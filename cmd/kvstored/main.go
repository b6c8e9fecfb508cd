// Command kvstored is the KV cache sidecar and its tools: the daemon itself
// (serve), what an operator asks of it (check, config, stats, flush, pins, spaces,
// revoke, policy, clear, purge), hands-on access (put, get, lookup), and two ways to see it work (demo, replay).
//
// It wires the packages of this module together and is imported by none. Only
// main ends the process; every command returns an error, and exit.go says
// which code it means.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/database"
)

func main() {
	database.Main() // in the process of a database; it does not return there
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return exitOK
	}
	code := exitCode(err)
	explain(stderr, cmd, err, code)
	return code
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "kvstored",
		Short: "A KV cache sidecar for LLM inference engines",
		Long: `kvstored keeps the KV cache of an inference engine in DRAM and on disk, beside
the engine, and tells it in microseconds how much of a new prompt it has.

See it work:      kvstored demo
Run the daemon:   kvstored serve --config kvstored.yaml

Exit codes: 0 done; 1 failed, or not all was done; 2 wrong usage; 3 wrong
configuration; 4 no daemon there, it went away, or it does not answer.`,
		SilenceUsage:  true,
		SilenceErrors: true,

		SuggestionsMinimumDistance: 2, // letters that may differ

		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(
		serveCommand(), checkCommand(), configCommand(), demoCommand(), replayCommand(), statsCommand(),
		putCommand(), getCommand(), lookupCommand(), deleteCommand(), flushCommand(), scrubCommand(), versionCommand(),
		pinsCommand(), revokeCommand(), policyCommand(), clearCommand(), purgeCommand(), spacesCommand(), warmCommand(),
	)
	markFailures(root)
	return root
}

// noSuchCommand refuses what no command is called, and says which one it is like.
func noSuchCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	if like := root.SuggestionsFor(args[0]); len(like) > 0 {
		text += "; did you mean " + strings.Join(like, " or ") + "?"
	}
	return errors.New(text)
}

// explain tells a person what went wrong.
func explain(w io.Writer, cmd *cobra.Command, err error, code int) {
	var (
		problems config.Errors
		faults   unfit
	)
	switch {
	case errors.As(err, &problems):
		fmt.Fprintln(w, problems) // each line names its place; editors can follow
	case errors.As(err, &faults):
		for _, err := range faults {
			fmt.Fprintln(w, "kvstored:", err)
		}
		what := "not start here"
		if !slices.ContainsFunc(faults, func(err error) bool { return !disk.IsTrouble(err) }) {
			what = "start here without the disk tier, and try to open it again and again"
		}
		fmt.Fprintf(w, "serve would %s. To check the configuration alone, add --file-only.\n", what)
	case code == exitUsage:
		text, _, _ := strings.Cut(err.Error(), "\n")
		fmt.Fprintf(w, "kvstored: %s\nRun '%s --help' for usage.\n", text, cmd.CommandPath())
	default:
		text := strings.ReplaceAll(err.Error(), ": kvstored: ", ": ") // the client's errors say whose they are
		fmt.Fprintf(w, "kvstored: %s\n", strings.TrimPrefix(text, "kvstored: "))
		switch {
		case code != exitUnreachable, errors.Is(err, client.ErrNoAnswer):
		case errors.Is(err, fs.ErrPermission):
			fmt.Fprintln(w, "This user may not write to its socket: join the group that owns it, or see listen.group and listen.mode.")
		default:
			fmt.Fprintln(w, "Start it with 'kvstored serve', or say where it listens with --socket or KVSTORED_SOCKET.")
		}
	}
}
