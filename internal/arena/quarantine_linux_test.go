package arena

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// connected starts a client that does nothing but live, and returns its peer.
func connected(t *testing.T) (*client, *Peer) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := startClient(t, order{Play: "connect", Socket: name}, nil)
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	// The connection ends before the process does.
	defer conn.Close()
	p, err := PeerOf(conn)
	if err != nil {
		t.Fatal(err)
	}
	if p.pid != c.cmd.Process.Pid || p.Ended() {
		t.Fatalf("peer is process %d (ended: %t), want %d", p.pid, p.Ended(), c.cmd.Process.Pid)
	}
	return c, p
}

// running returns a quarantine whose Run is stopped when the test ends.
func running(t *testing.T) *Quarantine {
	t.Helper()
	q, err := NewQuarantine()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- q.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

func TestQuarantineLastsAsLongAsTheProcess(t *testing.T) {
	a := newTest(t, Options{CapacityBytes: 1 << 20, Direct: true})
	q := running(t)
	c, p := connected(t)
	other, otherPeer := connected(t)
	defer otherPeer.Close()
	freed := make(chan int64, 3)
	report := func() { freed <- a.Stats().Blocks }

	q.AddFunc(p, report, mustAlloc(t, a, 5000), mustAlloc(t, a, 1))
	// The same process once more, known by another descriptor.
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	again := newPeer(p.pid, fd)
	q.AddFunc(again, report, mustAlloc(t, a, 1))
	q.AddFunc(otherPeer, report, mustAlloc(t, a, 1))
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if got, want := q.Stats(), (QuarantineStats{Peers: 2, Blocks: 4, Bytes: 5 * AlignBytes}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}

	other.kill()
	if blocks := <-freed; blocks != 3 {
		t.Errorf("%d blocks after the end of one process, want 3", blocks)
	}
	if got, want := q.Stats(), (QuarantineStats{Peers: 1, Blocks: 3, Bytes: 4 * AlignBytes}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	c.kill()
	if blocks := <-freed + <-freed; blocks != 0 {
		t.Errorf("%d blocks after the end of both", blocks)
	}
	if got := q.Stats(); got != (QuarantineStats{}) {
		t.Errorf("stats %+v at the end", got)
	}
}

func TestQuarantineOfTheDeadIsEmpty(t *testing.T) {
	a := newTest(t, Options{CapacityBytes: 1 << 20, Direct: true})
	q, err := NewQuarantine() // nobody runs it
	if err != nil {
		t.Fatal(err)
	}
	c, p := connected(t)
	c.kill()
	called := false
	q.AddFunc(p, func() { called = true }, mustAlloc(t, a, 1))
	q.Add(p, mustAlloc(t, a, 1))
	if !called || a.Stats().Blocks != 0 || q.Stats() != (QuarantineStats{}) {
		t.Errorf("held for a dead process: %+v", q.Stats())
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

func TestQuarantineKeepsWhatIsLeftUntilClose(t *testing.T) {
	a := newTest(t, Options{CapacityBytes: 1 << 20, Direct: true})
	q, err := NewQuarantine()
	if err != nil {
		t.Fatal(err)
	}
	_, p := connected(t)
	q.Add(p, mustAlloc(t, a, 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.Run(ctx); err != nil {
		t.Error(err)
	}
	if a.Stats().Blocks != 1 {
		t.Error("the end of Run freed what a living process can write")
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
