package budget

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// What a client over TCP has not read is charged until the client reads it or closes its
// end, which may reset the connection.
func TestResetLeavesNothingCharged(t *testing.T) {
	client, conn := socketPair(t, "tcp", "127.0.0.1:0")
	_ = conn.(*net.TCPConn).SetWriteBuffer(mib) // or they may take more
	_ = client.(*net.TCPConn).SetReadBuffer(mib)
	b := New(Options{Bytes: 64 * mib})
	a, err := b.Open(conn, RESP, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Sending(16 * mib); err != nil {
		t.Fatal(err)
	}
	overfill(t, conn.(*net.TCPConn))
	a.Sent()
	a.Close()
	if n := b.exorcise(); n != 1 || b.Stats().UsedBytes == 0 {
		t.Fatalf("%d connections are charged for what is unread, with %d bytes; want 1", n, b.Stats().UsedBytes)
	}
	_ = client.(*net.TCPConn).SetLinger(0)
	client.Close()
	hangUp := []unix.PollFd{{Fd: int32(b.mu.ghosts[0].fd)}}
	if _, err := unix.Poll(hangUp, 10_000); err != nil || hangUp[0].Revents&unix.POLLHUP == 0 {
		t.Fatalf("the reset does not arrive: %x, %v", hangUp[0].Revents, err)
	}
	if n := b.exorcise(); n != 0 || b.Stats().UsedBytes != 0 {
		t.Errorf("%d connections that were reset are charged, with %d bytes", n, b.Stats().UsedBytes)
	}
}

// overfill writes until the sockets take no more.
func overfill(t *testing.T, conn *net.TCPConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	some := make([]byte, mib)
	if werr := raw.Write(func(fd uintptr) bool {
		for err == nil {
			_, err = unix.Write(int(fd), some)
		}
		return true
	}); werr != nil || !errors.Is(err, unix.EAGAIN) {
		t.Fatal(werr, err)
	}
}
