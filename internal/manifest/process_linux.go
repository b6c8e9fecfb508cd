package manifest

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// processSpace is the namespace that numbers of processes are of; 0 where that is not known.
func processSpace() uint64 {
	var st syscall.Stat_t
	if syscall.Stat("/proc/self/ns/pid", &st) != nil {
		return 0
	}
	return st.Ino
}

// ClientOf is the process of a number now.
func ClientOf(pid uint32) Client { return Client{pid, startOf(pid)} }

// Ended reports whether the process has ended, for sure.
func (c Client) Ended() bool {
	if c.PID == 0 {
		return false
	}
	if syscall.Kill(int(c.PID), 0) == syscall.ESRCH {
		return true
	}
	now := startOf(c.PID)
	return c.Start != 0 && now != 0 && now != c.Start
}

// startOf is the 22nd field of /proc/PID/stat; 0 where that cannot be read.
func startOf(pid uint32) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" ")) // a name may have anything
	fields := bytes.Fields(rest)
	const field = 22 - 3
	if len(fields) <= field {
		return 0
	}
	n, _ := strconv.ParseUint(string(fields[field]), 10, 64)
	return n
}
