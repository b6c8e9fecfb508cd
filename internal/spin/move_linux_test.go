package spin

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A thread that moves is on another, and may be on all that it might
// be on before.
func TestMove(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	moved := 0
	for range 100 { // the kernel may move it back at any time
		from, ok := processor()
		move()
		if to, _ := processor(); ok && to != from {
			moved++
		}
	}
	if moved == 0 && before.Count() > 1 {
		t.Error("it stays where it is")
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil || after != before {
		t.Errorf("it may be on %d processors, was on one of %d before: %v", after.Count(), before.Count(), err)
	}
}
