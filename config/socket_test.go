package config

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSocketThere: commands go to the user's own daemon, and to that of the machine
// where only that one listens.
func TestSocketThere(t *testing.T) {
	dir := t.TempDir()
	own, machine := filepath.Join(dir, "own.sock"), filepath.Join(dir, "machine.sock")
	for _, step := range []struct{ makes, want string }{{"", own}, {machine, machine}, {own, own}} {
		if step.makes != "" {
			if err := os.WriteFile(step.makes, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := socketThere(own, machine); got != step.want {
			t.Errorf("after %q was made: %s, not %s", step.makes, got, step.want)
		}
	}
}
