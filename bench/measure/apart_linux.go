package measure

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Apart leaves this process the last of its processors, and returns a function that starts
// processes on the others: a time then has nothing of where the kernel happened to put
// both ends of a socket. The function runs start, whose child processes are meant. It is
// an error where there is one processor only.
func Apart() (on func(start func() error) error, err error) {
	var all, last unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, fmt.Errorf("processors of this process: %w", err)
	}
	if all.Count() < 2 {
		return nil, errors.New("this process has one processor, and two are needed to keep daemons and clients apart")
	}
	n := strconv.IntSize*len(all) - 1
	for !all.IsSet(n) {
		n--
	}
	last.Set(n)
	others := all
	others.Clear(n)
	threads, err := os.ReadDir("/proc/self/task") // those that come inherit it
	if err != nil {
		return nil, err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return nil, err
		}
		if err := unix.SchedSetaffinity(id, &last); err != nil {
			return nil, fmt.Errorf("thread %d: %w", id, err)
		}
	}
	return func(start func() error) error {
		runtime.LockOSThread() // a child is as the thread that makes it
		defer runtime.UnlockOSThread()
		if err := unix.SchedSetaffinity(0, &others); err != nil {
			return fmt.Errorf("processors of a child: %w", err)
		}
		defer func() { _ = unix.SchedSetaffinity(0, &last) }()
		return start()
	}, nil
}
