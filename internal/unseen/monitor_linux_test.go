//go:build !race

package unseen_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/unseen"
)

// TestMonitorSleeps: behind a sleep of the whole process that a socket ends, calls that
// are not seen leave the runtime's monitor asleep.
func TestMonitorSleeps(t *testing.T) {
	debug.SetGCPercent(-1) // a collection wakes it
	defer debug.SetGCPercent(100)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	far := os.NewFile(uintptr(fds[1]), "far")
	defer far.Close()
	near := os.NewFile(uintptr(fds[0]), "near")
	conn, err := net.FileConn(near)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	near.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command("sh", "-c", "sleep .2; echo 1")
	other.Stdout = far
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	threads, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(threads) == 0 {
		t.Fatal(threads, err)
	}
	var slept, looks int
	err = raw.Read(func(fd uintptr) bool {
		var buf [16]byte
		if _, err := unseen.Read(fd, buf[:]); err == unix.EAGAIN {
			slept++
			return false
		}
		before := woken(t, threads)
		for start := time.Now(); time.Since(start) < 10*time.Millisecond; {
			_, _ = unseen.Read(fd, buf[:]) // nothing
			unseen.Unread(fd)
			unseen.Yield()
		}
		looks = woken(t, threads) - before
		return true
	})
	if err != nil || slept == 0 {
		t.Fatal(slept, err)
	}
	if err := other.Wait(); err != nil {
		t.Fatal(err)
	}
	if looks > 25 { // of a monitor that is awake: 60
		t.Errorf("threads of the process have woken %d times in 10 ms", looks)
	}
}
