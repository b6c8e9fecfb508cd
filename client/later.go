package client

import (
	"context"

	"github.com/kvstored/kvstored/internal/wire"
)

// late are requests that wait for the next one. Commits go behind it if it leads:
// the daemon has work with them, and the others only give something back.
type late struct{ first, commits []byte }

// later registers a request that goes out with the next one, or with finish.
// On a link that is down the call has failed.
func (l *link) later(op wire.Op, req wire.Message, take func([]byte) error) *call {
	c := &call{op: op, done: make(chan struct{}, 1), take: take}
	if err := l.register(c); err != nil {
		c.err = err
		c.done <- struct{}{}
		return c
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	frames := &l.mu.late.first
	if op == wire.OpCommit {
		frames = &l.mu.late.commits
	}
	*frames = wire.AppendRequest(*frames, op, c.id, req)
	return c
}

// finish waits for the reply to a later request, and sends it first unless an
// earlier request took it along. Where ctx ends before, done is false: the request goes
// on, if need be with the next one. finish may be called again and again.
func (l *link) finish(ctx context.Context, c *call) (done bool, err error) {
	err = l.send(ctx, 0, nil)
	if err == nil {
		err = l.answered(ctx, c.op, c.done)
	}
	if err != nil {
		if !l.ending(c) {
			return false, err
		}
		<-c.done
	}
	c.done <- struct{}{}
	return true, c.err
}

// ending reports whether the reply to a call is being delivered at this moment, or the
// link has failed.
func (l *link) ending(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.taken || l.mu.err != nil
}

// keepLate takes back later requests that were not sent.
func (l *link) keepLate(unsent late) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.late.first = append(l.mu.late.first, unsent.first...)
	l.mu.late.commits = append(l.mu.late.commits, unsent.commits...)
}
