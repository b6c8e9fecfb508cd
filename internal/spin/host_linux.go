package spin

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/unseen"
)

// waited reads the run delay of the calling thread: the second number in its
// schedstat, in ns (Linux, Documentation/scheduler/sched-stats.rst).
func waited() (thread int, d time.Duration, ok bool) {
	var buf [128]byte
	d, ok = runDelay(unseen.ReadFile("/proc/thread-self/schedstat", buf[:]))
	return unix.Gettid(), d, ok
}

func runDelay(schedstat []byte) (time.Duration, bool) {
	fields := bytes.Fields(schedstat)
	if len(fields) < 2 {
		return 0, false
	}
	ns, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return time.Duration(ns), err == nil
}

// pressure reads for how long some thread waited for a processor (Linux,
// Documentation/accounting/psi.rst).
func pressure() (machine, group time.Duration) {
	machine = stalled("/proc/pressure/cpu")
	if path := groupPressure(); path != "" {
		group = stalled(path)
	}
	return machine, group
}

// runnable reads how many threads of the machine run or want to: the fourth field
// of /proc/loadavg begins with it (proc_loadavg(5)).
func runnable() (threads int, ok bool) {
	if !allProcessors() {
		return 0, false
	}
	var buf [128]byte
	return running(unseen.ReadFile("/proc/loadavg", buf[:]))
}

func running(loadavg []byte) (threads int, ok bool) {
	fields := bytes.Fields(loadavg)
	if len(fields) < 4 {
		return 0, false
	}
	n, _, _ := bytes.Cut(fields[3], []byte("/"))
	threads, err := strconv.Atoi(string(n))
	return threads, err == nil
}

// allProcessors reports whether this process may run on each that is online.
var allProcessors = sync.OnceValue(func() bool {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return false
	}
	online := 0
	for part := range bytes.SplitSeq(bytes.TrimSpace(b), []byte(",")) { // such as 0-3,8
		first, last, found := bytes.Cut(part, []byte("-"))
		if !found {
			last = first
		}
		from, err := strconv.Atoi(string(first))
		to, err2 := strconv.Atoi(string(last))
		if err != nil || err2 != nil {
			return false
		}
		online += to - from + 1
	}
	return runtime.NumCPU() >= online
})

// groupPressure is the file of the process's control group, "" where it has none
// of version 2.
var groupPressure = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(b) {
		if path, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("0::")); ok {
			return "/sys/fs/cgroup" + string(path) + "/cpu.pressure"
		}
	}
	return ""
})

// stalled is the total of the first line of a pressure file, which is in us; 0
// where it cannot be read.
func stalled(path string) time.Duration {
	var buf [256]byte
	line, _, _ := bytes.Cut(unseen.ReadFile(path, buf[:]), []byte("\n"))
	_, total, _ := bytes.Cut(line, []byte("total="))
	us, err := strconv.ParseInt(string(bytes.TrimSpace(total)), 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}
