package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
)

// DefaultTimeout is Options.Timeout where none is given.
const DefaultTimeout = 10 * time.Second

// ErrNoAnswer says that the daemon was silent for longer than Options.Timeout,
// and that the call's context had no deadline of its own.
var ErrNoAnswer = errors.New("the daemon does not answer: it is starting, stopped or overloaded, or a keeper holds its sockets")

// patience bounds calls whose context has no deadline.
type patience struct {
	timeout time.Duration // negative: no bound
	silent  error         // what such a call ends with
}

func newPatience(timeout time.Duration) patience {
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	return patience{timeout: timeout, silent: fmt.Errorf("nothing came within %v: %w", timeout, ErrNoAnswer)}
}

// bound returns ctx, or where that has no deadline one that ends with the
// timeout. It is made only where a call is about to block: it costs more than
// a glance at the socket.
func (p *patience) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok || p.timeout < 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, p.timeout, p.silent)
}

// ended is the error of a call whose context has ended.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, ErrNoAnswer) {
		return err
	}
	return ctx.Err()
}

// slow reports whether the answer to op waits for more than the daemon: for a
// disk, a bucket, or the loads of a job.
func slow(op wire.Op) bool {
	switch op {
	case wire.OpWait, wire.OpGet, wire.OpReserve, wire.OpDelete, wire.OpFlush, wire.OpWarm, wire.OpEvents:
		return true
	}
	return false
}

// answered returns when done yields, as await does. A call of a slow operation
// without a deadline goes on for as long as the daemon answers pings.
func (l *link) answered(ctx context.Context, op wire.Op, done <-chan struct{}) error {
	err := l.await(ctx, done)
	for slow(op) && errors.Is(err, ErrNoAnswer) && l.ping(ctx) == nil {
		err = l.await(ctx, done)
	}
	return err
}

func (l *link) ping(ctx context.Context) error {
	return l.do(ctx, wire.OpPing, wire.EmptyRequest{}, wire.EmptyReply{}.Decode, nil)
}
