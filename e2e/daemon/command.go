package daemon

import (
	"encoding/json"
	"testing"
)

// The exit codes of commands. Scripts depend on them.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
)

// Must runs a command that has to work and returns what it prints.
func Must(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	code, out, errs := Run(t, stdin, args...)
	if code != ExitOK {
		t.Fatalf("%v: exit code %d, %s", args, code, errs)
	}
	return out
}

// MustJSON runs a command with --json and returns what it prints.
func MustJSON[T any](t testing.TB, args ...string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(Must(t, "", append(args, "--json")...)), &v); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}
