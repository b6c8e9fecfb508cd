package arena_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/kvstored/kvstored/internal/arena"
)

// connected starts a client that does nothing but live, and returns it as each of its two
// connections knows it.
func connected(t *testing.T) (c *client, p, again *arena.Peer) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c = startClient(t, order{Play: "connect", Socket: name}, nil)
	for _, peer := range []**arena.Peer{&p, &again} {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		// The connection ends before the process does.
		defer conn.Close()
		if *peer, err = arena.PeerOf(conn); err != nil {
			t.Fatal(err)
		}
		if (*peer).Ended() {
			t.Fatal("the client has ended")
		}
	}
	return c, p, again
}

// running returns a quarantine whose Run is stopped when the test ends.
func running(t *testing.T) *arena.Quarantine {
	t.Helper()
	q, err := arena.NewQuarantine()
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
	a := newTest(t, arena.Options{CapacityBytes: 1 << 20, Direct: true})
	q := running(t)
	c, p, again := connected(t)
	other, otherPeer, _ := connected(t)
	defer otherPeer.Close()
	freed := make(chan int64, 3)
	report := func() { freed <- a.Stats().Blocks }

	q.AddFunc(p, report, mustAlloc(t, a, 5000), mustAlloc(t, a, 1))
	// The same process once more, known by another descriptor.
	q.AddFunc(again, report, mustAlloc(t, a, 1))
	q.AddFunc(otherPeer, report, mustAlloc(t, a, 1))
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if got, want := q.Stats(), (arena.QuarantineStats{Peers: 2, Blocks: 4, Bytes: 5 * arena.AlignBytes}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}

	other.kill()
	if blocks := <-freed; blocks != 3 {
		t.Errorf("%d blocks after the end of one process, want 3", blocks)
	}
	if got, want := q.Stats(), (arena.QuarantineStats{Peers: 1, Blocks: 3, Bytes: 4 * arena.AlignBytes}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	c.kill()
	if blocks := <-freed + <-freed; blocks != 0 {
		t.Errorf("%d blocks after the end of both", blocks)
	}
	if got := q.Stats(); got != (arena.QuarantineStats{}) {
		t.Errorf("stats %+v at the end", got)
	}
}

func TestQuarantineOfTheDeadIsEmpty(t *testing.T) {
	a := newTest(t, arena.Options{CapacityBytes: 1 << 20, Direct: true})
	q, err := arena.NewQuarantine() // nobody runs it
	if err != nil {
		t.Fatal(err)
	}
	c, p, _ := connected(t)
	c.kill()
	called := false
	q.AddFunc(p, func() { called = true }, mustAlloc(t, a, 1))
	q.Add(p, mustAlloc(t, a, 1))
	if !called || a.Stats().Blocks != 0 || q.Stats() != (arena.QuarantineStats{}) {
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
	a := newTest(t, arena.Options{CapacityBytes: 1 << 20, Direct: true})
	q, err := arena.NewQuarantine()
	if err != nil {
		t.Fatal(err)
	}
	_, p, _ := connected(t)
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
