package resp

import "context"

// transaction is the commands between MULTI and EXEC. They run one after
// another, and those of other clients may come between. Their values wait in
// the arena, charged to the connection as all that are under way; so for the
// watch over stalls it is one command.
type transaction struct {
	queue  []queued
	bytes  int  // what the queue costs besides values; charged
	broken bool // a command was refused, and so will EXEC be
}

// queued is a command with all that came with it.
type queued struct {
	name  string
	cmd   *command
	mute  bool // as of the session
	args  [][]byte
	fills []fill
}

// What a queued command costs, and each of its arguments, besides their bytes.
const (
	queuedBytes = 256
	argBytes    = 32
)

func doMulti(c *session, _ context.Context) {
	if c.tx != nil {
		c.fail("ERR MULTI calls can not be nested")
		return
	}
	c.tx = new(transaction)
	c.out.simple("OK")
}

func doExec(c *session, _ context.Context) {
	t := c.tx
	c.tx = nil
	switch {
	case t == nil:
		c.fail("ERR EXEC without MULTI")
		return
	case t.broken:
		c.fail("EXECABORT Transaction discarded because of previous errors.")
		return
	}
	defer c.account.Release(int64(t.bytes))
	c.out.array(len(t.queue))
	for _, q := range t.queue {
		if c.quit = c.quit || c.closing.Load(); c.quit { // hung up on: the rest is not done
			abort(q.fills)
			continue
		}
		c.args, c.fills, c.mute = q.args, q.fills, q.mute
		if c.may(q.cmd.need) { // they may have changed since
			q.cmd.run(c, c.work)
		} else {
			c.fail(denied, q.name, q.cmd.need)
		}
		c.reset()
		c.out.relieve()
	}
}

// breakTransaction gives up the queued commands and their fills, if there is a
// transaction, and refuses its EXEC.
func (c *session) breakTransaction() {
	if c.tx == nil {
		return
	}
	for _, q := range c.tx.queue {
		abort(q.fills)
	}
	c.account.Release(int64(c.tx.bytes))
	*c.tx = transaction{broken: true}
}

// enqueue keeps the command that was just read for EXEC.
func (c *session) enqueue(name string, cmd *command) {
	for _, f := range c.fills {
		if f.err != nil && !c.mute { // else it is dropped when its turn comes
			c.refuseValue(f.err)
			c.breakTransaction()
			return
		}
	}
	t := c.tx
	cost := queuedBytes + len(c.text) + argBytes*len(c.args)
	if t.bytes+cost > c.server.o.Limits.ArgBytes {
		c.fail("ERR the commands of a transaction are too long together")
		c.breakTransaction()
		return
	}
	if !t.broken {
		if err := c.account.Charge(int64(cost)); err != nil { // the connection ends
			c.quit = true
			c.breakTransaction()
			return
		}
		t.bytes += cost
		t.queue = append(t.queue, queued{name, cmd, c.mute, c.args, c.fills})
		c.args, c.text, c.fills = nil, nil, nil // they are the queue's now
	}
	c.out.simple("QUEUED")
}
