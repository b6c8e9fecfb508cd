package client

import (
	"context"
	"fmt"

	"github.com/kvstored/kvstored/internal/wire"
)

// orphan is a request that gives back a job or a fill which came in a reply
// after its caller had left, or what a Writer has not written of a fill.
type orphan struct {
	op  wire.Op
	req wire.Message
}

// sweep sends the orphans, after reading and without a role: the reader must
// not wait for a writer that waits for the daemon to read. An orphan that
// cannot be sent at once is left to the next sweep.
func (l *link) sweep() {
	for {
		l.mu.Lock()
		n := len(l.mu.orphans)
		if n == 0 {
			l.mu.Unlock()
			return
		}
		o := l.mu.orphans[n-1]
		l.mu.orphans = l.mu.orphans[:n-1]
		l.mu.Unlock()
		if !l.post(o) {
			return
		}
	}
}

// post sends a request without waiting for its reply. It reports false, having
// kept the orphan, if sending would have to wait.
func (l *link) post(o orphan) bool {
	select {
	case <-l.writer:
	default:
		l.keep(o)
		return false
	}
	defer func() { l.writer <- struct{}{} }()
	c := &call{op: o.op, done: make(chan struct{}, 1), left: true}
	if l.register(c) != nil {
		return false
	}
	l.out = wire.AppendRequest(l.out[:0], o.op, c.id, o.req)
	n, err := l.conn.TryWrite(l.out)
	switch {
	case err == nil && n == 0:
		l.forget(c)
		l.keep(o)
		return false
	case err == nil && n < len(l.out):
		_, err = l.write(context.Background(), true, l.out[n:])
	case err != nil:
		l.fail(fmt.Errorf("%w: %w", ErrDisconnected, err))
	}
	return err == nil
}

func (l *link) keep(o ...orphan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.orphans = append(l.mu.orphans, o...)
}
