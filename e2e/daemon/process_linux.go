package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Pause stops the process by SIGSTOP and returns when no thread of it runs any more, and
// how to let it go on.
func (d *Daemon) Pause() (goOn func()) {
	d.t.Helper()
	d.Signal(syscall.SIGSTOP)
	process := d.cmd.Process
	for running := true; running; time.Sleep(time.Millisecond) {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", process.Pid))
		if err != nil || len(stats) == 0 || d.t.Context().Err() != nil {
			d.t.Fatal("the daemon does not stop", err)
		}
		running = slices.ContainsFunc(stats, func(path string) bool {
			stat, _ := os.ReadFile(path) // a thread that has ended runs no more
			return len(stat) > 0 && !strings.Contains(string(stat), ") T ")
		})
	}
	return func() { _ = process.Signal(syscall.SIGCONT) } // fails only if it has ended
}

// Children are the processes that the daemon has started: its databases.
func (d *Daemon) Children() (pids []int) {
	d.t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", d.cmd.Process.Pid))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // of a thread that has ended
		}
		for _, word := range strings.Fields(string(text)) {
			var child int
			if _, err := fmt.Sscan(word, &child); err != nil {
				d.t.Fatal(err)
			}
			pids = append(pids, child)
		}
	}
	return pids
}

// LimitFiles bounds how large the daemon's files may become; unix.RLIM_INFINITY: not at
// all. Its databases have the limits that they were started with.
func (d *Daemon) LimitFiles(bytes uint64) {
	d.t.Helper()
	if err := unix.Prlimit(d.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
		d.t.Fatal(err)
	}
}

// AnonymousBytes is the anonymous memory of the daemon.
func (d *Daemon) AnonymousBytes() (n int64) {
	d.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		d.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	if _, err := fmt.Sscanf(rest, "%d kB", &n); err != nil {
		d.t.Fatal(err)
	}
	return n << 10
}

// As runs a function on a thread that belongs to another user, which takes root.
func As(t testing.TB, uid uintptr, do func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("to be somebody else takes root")
	}
	done := make(chan syscall.Errno)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uid, uid, uid)
		if errno == 0 {
			do()
		}
		done <- errno
	}()
	if errno := <-done; errno != 0 {
		t.Fatal(errno)
	}
}
