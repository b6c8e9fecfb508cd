package database

import (
	"os"
	"syscall"
)

// program is what runs now, also when its file has been replaced or removed.
func program() (string, error) { return "/proc/self/exe", nil }

// processAttributes have the kernel kill the process when this one ends.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// goFirst asks the kernel to take this process before others where memory is
// short: the cache in DRAM is worth more. Refused, it is as likely as they are.
func goFirst() { _ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) }
