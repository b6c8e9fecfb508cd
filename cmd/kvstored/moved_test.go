package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const cClient = "../../clients/c"

// cProgram compiles one of the C client's test programs with the sanitizers.
// Without a C compiler the test is skipped, except in CI.
func cProgram(t *testing.T, sources ...string) string {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no C compiler, and CI skips nothing")
		}
		t.Skip("there is no C compiler: the C client is not tested")
	}
	program := filepath.Join(t.TempDir(), "program")
	args := []string{"-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-O1", "-g",
		"-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o", program}
	for _, s := range sources {
		args = append(args, filepath.Join(cClient, s))
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
