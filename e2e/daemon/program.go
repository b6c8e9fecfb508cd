package daemon

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
)

// programVar names a program to test in place of the one that this tree builds: one
// with the race detector in it, say, or an older release.
const programVar = "KVSTORED_PROGRAM"

// Root is the folder of the checkout.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

var program = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(programVar); path != "" {
		return path, nil
	}
	return Build("./cmd/kvstored")
})

var (
	router = sync.OnceValues(func() (string, error) { return Build("./router/cmd/kvstored-router") })
	lab    = sync.OnceValues(func() (string, error) { return Build("./lab/cmd/kvstored-lab") })
)

// Program is the path of the kvstored under test.
func Program(t testing.TB) string {
	t.Helper()
	return built(t, program)
}

// Router is the path of the router under test.
func Router(t testing.TB) string {
	t.Helper()
	return built(t, router)
}

// Lab is the path of the lab under test.
func Lab(t testing.TB) string {
	t.Helper()
	return built(t, lab)
}

func built(t testing.TB, program func() (string, error)) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Raced reports whether the kvstored under test has the race detector in it.
func Raced(t testing.TB) bool {
	t.Helper()
	info, err := buildinfo.ReadFile(Program(t))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// Build compiles a package of the checkout and returns the program's path, in the user's
// cache folder. Two processes may build the same program at the same time: each puts its
// own in place in one step, and processes that run keep theirs.
func Build(pkg string, flags ...string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	checkout := sha256.Sum256([]byte(Root())) // two of them do not share programs
	dir := filepath.Join(cache, "kvstored", "e2e", hex.EncodeToString(checkout[:4]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(pkg)+strings.Join(flags, ""))
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(fresh)
	cmd := exec.Command("go", append([]string{"build", "-o", fresh}, flags...)...)
	cmd.Dir = filepath.Join(Root(), pkg) // which says of which module it is
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return path, os.Rename(fresh, path)
}

// Run runs one command of kvstored with stdin as its standard input, and returns how it
// ended. The environment is the test's, with KVSTORED_ variables as t.Setenv has them.
func Run(t testing.TB, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), Program(t), args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, programVar+"=") })
	if len(args) > 0 && args[0] == "lab" {
		cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(Lab(t))+":"+os.Getenv("PATH"))
	}
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("kvstored %s: %v", strings.Join(args, " "), err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}
