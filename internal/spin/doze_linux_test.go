package spin

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A real socket ends the sleep when a message comes, or its peer goes.
func TestReadable(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	if readable(uintptr(fds[0]), time.Millisecond) {
		t.Error("a message came that nobody sent")
	}
	go func() {
		time.Sleep(time.Millisecond)
		_, _ = unix.Write(fds[1], []byte("x"))
	}()
	if !readable(uintptr(fds[0]), time.Minute) {
		t.Error("the message did not end the sleep")
	}
	var p [8]byte
	if n, err := unix.Read(fds[0], p[:]); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	unix.Close(fds[1])
	if !readable(uintptr(fds[0]), time.Minute) {
		t.Error("the end of the stream did not end the sleep")
	}
}
