package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Cage makes a memory control group with a limit, of either version, and returns its
// folder and what Daemon.Under must be for the daemon to live in it from its first page
// on. Without root, or a kernel that has it, both are empty and the test's log says why.
// It must be made before the daemon's folder: it goes when the daemon has ended.
func Cage(t testing.TB, limit int64) (dir string, under []string) {
	t.Helper()
	for _, kind := range []struct{ root, limit, swap string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.swappiness"},
		{"/sys/fs/cgroup", "memory.max", "memory.swap.max"},
	} {
		if _, err := os.Stat(filepath.Join(kind.root, "cgroup.procs")); err != nil {
			continue
		}
		dir = filepath.Join(kind.root, fmt.Sprintf("kvstored-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			_ = os.WriteFile(filepath.Join(dir, kind.swap), []byte("0"), 0o644) // a kernel without swap has no such file
			err = os.WriteFile(filepath.Join(dir, kind.limit), strconv.AppendInt(nil, limit, 10), 0o644)
		}
		if err == nil {
			t.Cleanup(func() { removeCage(t, dir) })
			return dir, []string{"sh", "-c", `echo $$ > "$0"/cgroup.procs && exec "$@"`, dir}
		}
		_ = os.Remove(dir)
		t.Logf("no memory control group can be made at %s: %v", kind.root, err)
	}
	t.Log("there is no memory control group here: the daemon runs without a limit on its memory")
	return "", nil
}

// removeCage waits for the last process of a cage to be gone.
func removeCage(t testing.TB, dir string) {
	for end := time.Now().Add(patience); ; time.Sleep(startPoll) {
		err := os.Remove(dir)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Errorf("the control group stays: %v", err)
			return
		}
	}
}
