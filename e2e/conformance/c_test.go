package conformance_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
)

// cProgram compiles one of the C client's test programs with the sanitizers.
func cProgram(t *testing.T, sources ...string) string {
	t.Helper()
	compiler := need.Compiler(t)
	program := filepath.Join(t.TempDir(), "program")
	args := []string{"-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-O1", "-g",
		"-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o", program}
	for _, s := range sources {
		args = append(args, filepath.Join(daemon.Root(), "clients", "c", s))
	}
	if out, err := exec.CommandContext(t.Context(), compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return program
}

func runC(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestCConformance runs the scripts that every client must pass with the C
// client.
func TestCConformance(t *testing.T) {
	program := cProgram(t, "kvstored.c", "test/conformance.c")
	for _, path := range scripts(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			runC(t, program, daemon.Start(t).Socket, path)
		})
	}
}

// TestCArguments: the C client answers calls that make no sense with codes.
func TestCArguments(t *testing.T) {
	runC(t, cProgram(t, "kvstored.c", "test/arguments.c"), daemon.Start(t).Socket)
}

// TestCGarbage: what a daemon must not send ends the C client's connection with
// an error, and nothing else.
func TestCGarbage(t *testing.T) {
	program := cProgram(t, "kvstored.c", "test/conformance.c")
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("ping\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, garbage := range map[string]string{
		"nothing":        "",
		"half a header":  "\x00\x00\x00\x00\x01\x01",
		"no frame":       "-ERR unknown command\r\n-ERR unknown command\r\n",
		"huge":           "\xff\xff\xff\xff\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00",
		"another id":     "\x00\x00\x00\x00\x01\x01\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00",
		"an empty hello": "\x00\x00\x00\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00",
		"another version": "\x06\x00\x00\x00\x01\x01\x03\x00\x01\x00\x00\x00\x00\x00\x00\x00" +
			"\x04\x00none",
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if _, err := c.Read(make([]byte, 4096)); err == nil {
					_, _ = c.Write([]byte(garbage))
				}
			}()
			out, err := exec.CommandContext(t.Context(), program, socket, script).CombinedOutput()
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 2 {
				t.Errorf("the program ended with %v, not with 2\n%s", err, out)
			}
		})
	}
}
