package resp

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A slow command takes nothing of the time of those after it.
func TestTransactionTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, conn := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, client) }()
		defer conn.Close()
		c := &session{ctx: t.Context(), work: t.Context(), out: newOutput(conn, nil, time.Minute, func(int64) {}), tx: new(transaction)}
		var ended []error
		wait := func(_ *session, ctx context.Context) {
			time.Sleep(commandTimeout - time.Second)
			ended = append(ended, ctx.Err())
		}
		c.tx.queue = []queued{{run: wait}, {run: wait}, {run: wait}}
		c.run(doExec, false)
		if len(ended) != 3 || ended[0] != nil || ended[1] != nil || ended[2] != nil {
			t.Errorf("in time, their contexts ended: %v", ended)
		}
	})
}

// A connection at rest keeps little of its last command, however large that was.
func TestResetForgets(t *testing.T) {
	c := new(session)
	c.text = make([]byte, 1<<20)
	c.ends = []int{1 << 19, 1 << 20}
	c.cutArgs()
	args := c.args
	c.reset()
	if c.text != nil || args[0] != nil || args[1] != nil {
		t.Errorf("it keeps %d bytes of text, and arguments that lie in it", cap(c.text))
	}
	c.ends = make([]int, maxArgs)
	c.cutArgs()
	c.reset()
	if cap(c.args) > keptArgs || cap(c.ends) > 2*keptArgs {
		t.Errorf("it keeps room for %d arguments", cap(c.args))
	}
}

// A client that reads nothing is given up after its StallTimeout, also where the
// connection's goroutine waits for it in the middle of a command.
func TestDeafInsideCommand(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		ends[i], err = net.FileConn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		defer ends[i].Close()
	}
	const stall = 100 * time.Millisecond
	o := newOutput(ends[0], nil, stall, func(int64) {})
	part := make([]byte, inPlace)
	state := func() (busy bool, queued int) {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.mu.busy, len(o.mu.queue)
	}
	for busy := false; !busy; busy, _ = state() { // until the socket is full
		o.bulk(part)
		o.flush()
	}
	for queued := 1; queued > 0; _, queued = state() { // until the writer has them all
		time.Sleep(time.Millisecond)
	}
	o.mu.Lock()
	o.mu.bytes = maxQueue // as so many replies would be
	o.mu.Unlock()
	o.bulk(part)
	ended := make(chan error)
	go func() {
		_, err := newSocket(ends[0], 0, o.flush, o.due).read(part, nil)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("there was something to read")
		}
	case <-time.After(time.Minute):
		t.Fatal("a client that reads nothing keeps its session for ever")
	}
}
