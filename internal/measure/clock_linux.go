package measure

import (
	"time"

	"golang.org/x/sys/unix"
)

// busy is the processor time that a process has taken, 0 once it was waited for.
func busy(pid int) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil { // its clock, as clock_getcpuclockid(3) makes it
		return 0
	}
	return time.Duration(t.Nano())
}
