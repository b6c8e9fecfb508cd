package measure_test

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/bench/measure"
)

// TestApart: this process has one processor afterwards, and children have the others.
func TestApart(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	on, err := measure.Apart()
	if all.Count() < 2 {
		if err == nil {
			t.Fatal("one processor was made two")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { // for the tests that follow
		threads, _ := os.ReadDir("/proc/self/task")
		for _, thread := range threads {
			if id, err := strconv.Atoi(thread.Name()); err == nil {
				_ = unix.SchedSetaffinity(id, &all)
			}
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil || mine.Count() != 1 {
		t.Fatalf("this process has %d processors, %v", mine.Count(), err)
	}
	var counted []byte
	if err := on(func() (err error) { counted, err = exec.Command("nproc").Output(); return err }); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(counted)); got != strconv.Itoa(all.Count()-1) {
		t.Errorf("a child has %s processors of %d", got, all.Count())
	}
	if err := unix.SchedGetaffinity(0, &mine); err != nil || mine.Count() != 1 {
		t.Fatalf("then this process has %d processors, %v", mine.Count(), err)
	}
}
