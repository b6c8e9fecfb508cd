package disk

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// smallFileSystem mounts one of n bytes, where that is allowed.
func smallFileSystem(t *testing.T, n int64) (dir string, unmount func()) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", n)); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	return dir, func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	}
}
