package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/daemon"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/human"
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
	var text bytes.Buffer
	tellError(&text, cmd, err, code)
	human.LastWords(stderr, text.Bytes())
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
		Version:       human.GetVersion().Version, // there is a flag --version
		SilenceUsage:  true,
		SilenceErrors: true,

		SuggestionsMinimumDistance: 2, // letters that may differ

		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate(versionLine(human.GetVersion()) + "\n")
	add := func(group, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: group, Title: title})
		for _, cmd := range commands {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	add("run", "Run it:", serveCommand(), checkCommand(), demoCommand())
	add("look", "Look at it:", statsCommand(), whyCommand(), listCommand(), lookupCommand(), eventsCommand())
	add("prompt", "One prompt:", putCommand(), getCommand(), forgetCommand())
	add("operate", "Operate it:", flushCommand(), scrubCommand(), policyCommand(), labCommand(), versionCommand())
	for name, now := range moved {
		root.AddCommand(movedCommand(name, now))
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
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

// tellError tells a person what went wrong.
func tellError(w io.Writer, cmd *cobra.Command, err error, code int) {
	var (
		problems  config.Errors
		preflight daemon.Problems
	)
	switch {
	case errors.As(err, &problems):
		fmt.Fprintln(w, problems) // each line names its place; editors can follow
	case errors.As(err, &preflight):
		for _, err := range preflight {
			fmt.Fprintln(w, "kvstored:", err)
		}
		what := "not start here"
		if preflight.WithoutDisk() {
			what = "start here without the disk tier, and try to open it again and again"
		}
		fmt.Fprintf(w, "serve would %s. To check the configuration alone, add --file-only.\n", what)
	case code == exitUsage:
		text, _, _ := strings.Cut(err.Error(), "\n")
		fmt.Fprintln(w, "kvstored:", groupError(text))
		if !cmd.Hidden {
			fmt.Fprintf(w, "Run '%s --help' for usage.\n", cmd.CommandPath())
		}
	default:
		text := strings.ReplaceAll(err.Error(), ": kvstored: ", ": ") // the client's errors say whose they are
		fmt.Fprintf(w, "kvstored: %s\n", strings.TrimPrefix(text, "kvstored: "))
		switch {
		case code != exitUnreachable, errors.Is(err, client.ErrNoAnswer), errors.Is(err, admin.ErrNoAnswer):
		case errors.As(err, new(adminError)) && errors.Is(err, fs.ErrPermission):
			fmt.Fprintln(w, "Administrators have a socket of their own: call as root or as the daemon's user, or see admin.mode, admin.group and listen.admin_uids.")
		case errors.As(err, new(adminError)):
			fmt.Fprintln(w, "Start it with 'kvstored serve', or say where it listens with --socket, KVSTORED_SOCKET or --admin-socket.")
		case errors.Is(err, fs.ErrPermission):
			fmt.Fprintln(w, "This user may not write to its socket: join the group that owns it, or see listen.group and listen.mode.")
		default:
			fmt.Fprintln(w, "Start it with 'kvstored serve', or say where it listens with --socket or KVSTORED_SOCKET.")
		}
	}
}

func versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, human.GetVersion(), func(w io.Writer) error {
				_, err := fmt.Fprintln(w, versionLine(human.GetVersion()))
				return err
			})
		},
	}
	jsonFlag(cmd)
	return cmd
}

// versionLine is what `kvstored version` and `kvstored --version` print.
func versionLine(v human.Version) string {
	commit := ""
	if v.Commit != "" {
		commit = "commit " + v.Commit + ", "
	}
	if v.Modified {
		commit += "with changes, "
	}
	return fmt.Sprintf("kvstored %s (%s%s, %s/%s)", v.Version, commit, v.Go, v.OS, v.Arch)
}
