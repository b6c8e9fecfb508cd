package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

// labProgram is the lab's, which lies beside this one or in PATH.
const labProgram = "kvstored-lab"

var errNoLab = errors.New(labProgram + ` is neither beside this program nor in PATH. A release has a package of it,
and in a checkout 'go -C lab build -o DIR ./cmd/kvstored-lab' makes it`)

func labCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lab COMMAND",
		Short: "Replay and simulate traces, and say what other sizes and policies would hit",
		Long: `Run kvstored-lab, which plays traces against a daemon, simulates what caches of
other sizes and policies would keep of them, and says the same of what a daemon's
clients have asked for. It is a program of its own, beside this one or in PATH.`,
		Example: `  kvstored lab replay --trace conversation_trace.jsonl
  kvstored lab whatif`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := labPath()
			if err != nil {
				return err
			}
			err = syscall.Exec(path, append([]string{labProgram}, args...), os.Environ())
			return fmt.Errorf("run %s: %w", path, err)
		},
	}
}

// moved are commands that there were, and what does the same now.
var moved = map[string]string{
	"replay": "kvstored lab replay", "whatif": "kvstored lab whatif", "top": "kvstored stats --watch", "route": "kvstored-router serve",
	"config": "kvstored check --running", "warm": "kvstored lookup --promote", "delete": "kvstored forget", "purge": "kvstored forget --space ID", "clear": "kvstored forget --tier NAME",
	"clients": "kvstored list clients", "leases": "kvstored list leases", "jobs": "kvstored list jobs", "spaces": "kvstored list spaces", "ls": "kvstored list prefixes",
	"pins": "kvstored list claims", "retains": "kvstored list claims", "revoke": "kvstored list claims --revoke NAME', or 'kvstored list leases --revoke CONNECTION",
}

// movedCommand is one of these.
func movedCommand(name, now string) *cobra.Command {
	return &cobra.Command{Use: name, Short: "See " + now, Hidden: true, DisableFlagParsing: true, RunE: func(*cobra.Command, []string) error {
		return usage(fmt.Errorf("there is no command %s any more: call '%s'", name, now))
	}}
}

func labPath() (string, error) {
	if own, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(own), labProgram)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(labProgram)
	if err != nil {
		return "", errNoLab
	}
	return path, nil
}
