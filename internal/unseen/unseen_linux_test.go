package unseen_test

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/unseen"
)

// pair returns the two ends of a socket that does not block.
func pair(t *testing.T) (a, b uintptr) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		t.Cleanup(func() { unix.Close(fd) })
	}
	return uintptr(fds[0]), uintptr(fds[1])
}

// TestSocket: what is written is what is read, nothing waits, and each end of the other
// is told.
func TestSocket(t *testing.T) {
	a, b := pair(t)
	buf := make([]byte, 1<<20)
	if _, err := unseen.Read(b, buf[:16]); err != syscall.EAGAIN {
		t.Errorf("an empty socket: %v", err)
	}
	if _, err := unseen.Read(b, buf); err != syscall.EAGAIN {
		t.Errorf("an empty socket, with much room: %v", err)
	}
	var sent []byte
	for i := range buf {
		buf[i] = byte(i * 7 >> 3)
	}
	for {
		n, err := unseen.Write(a, buf[len(sent):])
		if sent = append(sent, buf[len(sent):][:max(n, 0)]...); err == syscall.EAGAIN {
			break
		}
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
	}
	if n := unseen.Unread(a); n < int64(len(sent)) {
		t.Errorf("%d bytes are unread of %d", n, len(sent))
	}
	var got []byte
	for part := make([]byte, 100_000); len(got) < len(sent); {
		n, err := unseen.Read(b, part)
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		got = append(got, part[:n]...)
		part = part[:max(1, len(part)-7)]
	}
	if !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came of %d, or others", len(got), len(sent))
	}
	if n := unseen.Unread(a); n != 0 {
		t.Errorf("%d bytes are unread when all are", n)
	}
	unix.Shutdown(int(b), unix.SHUT_RDWR)
	if n, err := unseen.Read(a, buf[:1]); n != 0 || err != nil {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if _, err := unseen.Write(a, buf[:1]); err != syscall.EPIPE {
		t.Errorf("a write to nowhere: %v, want EPIPE and no signal", err)
	}
	const none = 1 << 20
	if _, err := unseen.Read(none, buf[:1]); err != syscall.EBADF {
		t.Errorf("a read of no descriptor: %v", err)
	}
	if _, err := unseen.Write(none, buf[:1]); err != syscall.EBADF {
		t.Errorf("a write to no descriptor: %v", err)
	}
	if n := unseen.Unread(none); n != 0 {
		t.Errorf("%d bytes are unread of no descriptor", n)
	}
}

func TestReadFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	for room, want := range map[int]string{0: "", 4: "0123", 10: "0123456789", 99: "0123456789"} {
		if got := unseen.ReadFile(file, make([]byte, room)); string(got) != want {
			t.Errorf("with room for %d bytes: %q", room, got)
		}
	}
	for _, bad := range []string{file + "x", t.TempDir(), "", "a\x00b"} {
		if got := unseen.ReadFile(bad, make([]byte, 4)); got != nil {
			t.Errorf("of %q comes %q", bad, got)
		}
	}
}

// TestTakeEvent: an event that was taken off comes again only with another cause.
func TestTakeEvent(t *testing.T) {
	a, b := pair(t)
	instance, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(instance)
	if err := unix.EpollCtl(instance, unix.EPOLL_CTL_ADD, int(b), &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT}); err != nil {
		t.Fatal(err)
	}
	unseen.TakeEvent(uintptr(instance)) // there is none
	if _, err := unseen.Write(a, []byte{1}); err != nil {
		t.Fatal(err)
	}
	unseen.TakeEvent(uintptr(instance))
	if n, err := unix.EpollWait(instance, make([]unix.EpollEvent, 1), 0); n != 0 || err != nil {
		t.Errorf("%d events are left, %v", n, err)
	}
}
