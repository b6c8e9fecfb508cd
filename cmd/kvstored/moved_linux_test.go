package main

import (
	"io"
	"os"
	"runtime"
	"syscall"
	"testing"
)

// as runs a function on a thread that belongs to another user.
func as(t *testing.T, uid uintptr, do func()) {
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

func reads(r io.Reader, b []byte) bool {
	_, err := io.ReadFull(r, b)
	return err == nil
}
