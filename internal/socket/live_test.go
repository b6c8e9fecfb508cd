package socket

import (
	"errors"
	"net"
	"testing"
)

// A recheck closes the connections that are refused by now, and nothing else; it
// does not ask about one that was removed.
func TestRecheck(t *testing.T) {
	var l Live
	kept, keptPeer := net.Pipe()
	refused, refusedPeer := net.Pipe()
	gone, _ := net.Pipe()
	defer kept.Close()
	defer gone.Close()
	defer l.Add(kept)()
	defer l.Add(refused)()
	l.Add(gone)()
	l.Recheck(func(conn net.Conn) error {
		switch conn {
		case kept:
			return nil
		case gone:
			t.Error("a connection that was removed is checked")
		}
		return errors.New("not any more")
	})
	if _, err := refusedPeer.Read(make([]byte, 1)); err == nil {
		t.Error("a connection that is refused is open")
	}
	go kept.Write([]byte("x")) //nolint:errcheck // the read tells
	if n, err := keptPeer.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("a connection that is admitted: %v", err)
	}
}
