package budget

import (
	"net"
	"testing"
	"time"

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
	_ = conn.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)) // until the sockets are full
	if n, err := conn.Write(make([]byte, 16*mib)); err == nil {
		t.Fatalf("the sockets take all %d bytes", n)
	}
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
