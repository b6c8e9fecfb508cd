package filesystem

import (
	"path/filepath"
	"testing"
)

// A file system counts once, however many paths lie on it and whether they
// were made or not.
func TestTotalBytes(t *testing.T) {
	dir := t.TempDir()
	one, err := TotalBytes([]string{dir})
	if err != nil || one <= 0 {
		t.Fatalf("%d bytes: %v", one, err)
	}
	many, err := TotalBytes([]string{filepath.Join(dir, "a", "b"), dir, filepath.Join(dir, "c")})
	if err != nil || many != one {
		t.Fatalf("%d bytes for three paths on one file system of %d: %v", many, one, err)
	}
}
