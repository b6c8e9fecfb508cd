package resp

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A slow command takes nothing of the time of those after it.
func TestTransactionTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, conn := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, client) }()
		defer conn.Close()
		c := &session{ctx: t.Context(), out: newOutput(conn, time.Minute, func(int64) {}), tx: new(transaction)}
		var ended []error
		wait := func(_ *session, ctx context.Context) {
			time.Sleep(commandTimeout - time.Second)
			ended = append(ended, ctx.Err())
		}
		c.tx.queue = []queued{{run: wait}, {run: wait}, {run: wait}}
		c.run((*session).exec)
		if len(ended) != 3 || ended[0] != nil || ended[1] != nil || ended[2] != nil {
			t.Errorf("in time, their contexts ended: %v", ended)
		}
	})
}

// What a connection at rest keeps is small, whatever its last command was.
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
