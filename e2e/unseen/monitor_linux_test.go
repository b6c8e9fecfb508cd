//go:build !race

package unseen_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"
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
	looks, tries := 0, 0
	for slept := false; !slept; tries++ { // the other process may be first on a busy machine
		if tries == 20 {
			t.Fatal("the process does not sleep before the other one writes")
		}
		looks, slept = looksAfterSleep(t, raw, far)
	}
	if looks > 25 { // of a monitor that is awake: 60
		t.Errorf("threads of the process have woken %d times in 10 ms", looks)
	}
}

// looksAfterSleep has the process sleep until another one writes to far, and counts how
// often its threads wake while it makes calls then. It reports whether it has slept.
func looksAfterSleep(t *testing.T, raw syscall.RawConn, far *os.File) (looks int, slept bool) {
	other := exec.Command("sh", "-c", "sleep .2; echo 1")
	other.Stdout = far
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	threads, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(threads) == 0 {
		t.Fatal(threads, err)
	}
	err = raw.Read(func(fd uintptr) bool {
		var buf [16]byte
		if _, err := unseen.Read(fd, buf[:]); err == unix.EAGAIN {
			slept = true
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
	if err := errors.Join(err, other.Wait()); err != nil {
		t.Fatal(err)
	}
	return looks, slept
}

// woken is how often threads of this process have slept and gone on.
func woken(t *testing.T, threads []string) (n int) {
	buf := make([]byte, 4096)
	for _, thread := range threads {
		_, after, found := bytes.Cut(unseen.ReadFile(thread, buf), []byte("\nvoluntary_ctxt_switches:"))
		line, _, _ := bytes.Cut(after, []byte("\n"))
		times, err := strconv.Atoi(string(bytes.TrimSpace(line)))
		if !found || err != nil {
			t.Fatal(thread, found, err)
		}
		n += times
	}
	return n
}
