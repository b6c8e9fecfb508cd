package tiertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// The RAM file system of Linux, and the least room that a test takes it with: a container
// may have next to none there.
const (
	ramFolder   = "/dev/shm"
	ramMinBytes = 2 << 30
	ramPrefix   = "kvstored-test-" // of folders, before the id of the process
)

// sweep removes, once, what processes have left that ended by a panic or a kill.
var sweep = sync.OnceFunc(func() {
	left, _ := filepath.Glob(filepath.Join(ramFolder, ramPrefix+"*")) // the pattern is a good one
	for _, dir := range left {
		var pid int
		if n, _ := fmt.Sscanf(filepath.Base(dir), ramPrefix+"%d-", &pid); n == 1 && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = os.RemoveAll(dir)
		}
	}
})

// Folder is an empty folder for the files of a tier, which goes with the test. It lies
// in memory where the machine has a RAM file system, so that a test waits for no device;
// a test of what devices do takes t.TempDir.
func Folder(t testing.TB) string {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(ramFolder, &fs); err != nil || !inMemory(&fs) || int64(fs.Bavail)*int64(fs.Bsize) < ramMinBytes {
		return t.TempDir()
	}
	sweep()
	dir, err := os.MkdirTemp(ramFolder, fmt.Sprintf("%s%d-", ramPrefix, os.Getpid()))
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove %s: %v", dir, err)
		}
	})
	return dir
}
