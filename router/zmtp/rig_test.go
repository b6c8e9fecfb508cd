package zmtp_test

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// listen is a listener for a test, and its endpoint.
func listen(t *testing.T, network string) (net.Listener, string) {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	if network == "unix" {
		return l, "ipc://" + addr
	}
	return l, "tcp://" + l.Addr().String()
}

// during runs do until the test ends.
func during(t *testing.T, do func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := do(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

// until repeats do until ok says that it is so.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come")
		}
	}
}
