package resp

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/test/pipe"
)

// A connection at rest keeps little of its last command, however large that was.
func TestResetForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(session)
		c.text = make([]byte, 1<<20)
		c.args = [][]byte{c.text[:1<<19], c.text[1<<19:]}
		args := c.args
		c.reset()
		if c.text != nil || args[0] != nil || args[1] != nil {
			t.Errorf("it keeps %d bytes of text, and arguments that lie in it", cap(c.text))
		}
		c.args, c.ends = make([][]byte, maxArgs), make([]int, maxArgs)
		c.reset()
		if cap(c.args) > keptArgs || cap(c.ends) > 2*keptArgs {
			t.Errorf("it keeps room for %d arguments", cap(c.args))
		}
	})
}

// A client that reads nothing is given up after its StallTimeout, also where the
// connection's goroutine waits for it in the middle of a command.
func TestDeafInsideCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = 30 * time.Second
		near, far := pipe.New()
		defer far.Close()
		begun := time.Now()
		o := newOutput(near, nil, stall, func(int64) {})
		part := make([]byte, inPlace)
		for busy := false; !busy; { // until the connection is full
			o.bulk(part)
			o.flush()
			o.mu.Lock()
			busy = o.mu.busy
			o.mu.Unlock()
		}
		synctest.Wait() // the writer has them all
		o.mu.Lock()
		o.mu.bytes = maxQueue // as so many replies would be
		o.mu.Unlock()
		o.bulk(part)
		c := session{server: New(Options{Limits: Limits{StallTimeout: stall}}), conn: near, out: o}
		if _, err := c.Read(part); err == nil {
			t.Error("there was something to read")
		}
		if took := time.Since(begun); took != patience+stall {
			t.Errorf("it is given up after %v", took)
		}
	})
}
