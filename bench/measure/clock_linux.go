package measure

import (
	"time"

	"golang.org/x/sys/unix"
)

// Used is the processor time that a process has taken, 0 for this one: its clock
// has the number that clock_getcpuclockid(3) computes. It is 0 where that cannot be
// told.
func Used(pid int) time.Duration {
	const schedulerClock = 2
	var t unix.Timespec
	clock := int32(unix.CLOCK_PROCESS_CPUTIME_ID)
	if pid != 0 {
		clock = int32(^pid)<<3 | schedulerClock
	}
	if unix.ClockGettime(clock, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
