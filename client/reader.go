package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvstored/kvstored/internal/wire"
)

// await returns when done yields. Meanwhile it reads for all callers, unless
// another caller does. It returns the error of ctx or of the link.
func (l *link) await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-l.reader:
	default:
		var cancel context.CancelFunc
		ctx, cancel = l.bound(ctx)
		defer cancel()
		select {
		case <-done:
			return nil
		case <-l.down:
			return l.failure()
		case <-ctx.Done():
			return ended(ctx)
		case <-l.reader:
		}
	}
	err := l.readUntil(ctx, done)
	l.reader <- struct{}{}
	l.sweep()
	return err
}

// readUntil reads and dispatches frames until done yields.
func (l *link) readUntil(ctx context.Context, done <-chan struct{}) error {
	cancel, bounded := context.CancelFunc(func() {}), false
	defer func() { cancel() }()
	for {
		select {
		case <-done:
			return nil
		case <-l.down:
			return l.failure()
		default:
		}
		h, body, err := l.conn.TryReadFrame()
		if errors.Is(err, wire.ErrWouldBlock) {
			if !bounded {
				ctx, cancel = l.bound(ctx)
				bounded = true
			}
			stop := interrupt(ctx, l.conn.SetReadDeadline)
			h, body, err = l.conn.ReadFrame()
			stop()
		}
		if err != nil && ctx.Err() != nil {
			return ended(ctx)
		}
		if err := l.received(h, body, err); err != nil {
			return err
		}
	}
}

// received handles what a read returned. Its errors end the link.
func (l *link) received(h wire.Header, body []byte, err error) error {
	switch {
	case err == nil:
		err = l.dispatch(h, body)
	case errors.Is(err, wire.ErrFrameTooLarge):
		err = broken("%w", err)
	default:
		err = fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	if err != nil {
		return l.fail(err)
	}
	return nil
}

// dispatch gives one frame to its job or call. Its errors end the link.
func (l *link) dispatch(h wire.Header, body []byte) error {
	if h.BodyBytes%8 != 0 {
		return broken("a %s of %d bytes, which is no multiple of 8", h.Kind, h.BodyBytes)
	}
	switch h.Kind {
	case wire.KindPush:
		return l.push(h, body)
	case wire.KindReply:
	default:
		return broken("it sent a %s", h.Kind)
	}
	l.mu.Lock()
	c := l.mu.calls[h.ID]
	delete(l.mu.calls, h.ID)
	if c != nil {
		c.taken = true
	}
	l.mu.Unlock()
	if c == nil {
		return broken("reply %d answers nothing", h.ID)
	}
	err := l.deliver(c, h, body)
	c.err = err
	c.done <- struct{}{}
	if errors.Is(err, ErrProtocol) {
		return err
	}
	return nil
}

// deliver hands the reply to the caller, or cleans up behind one that left.
func (l *link) deliver(c *call, h wire.Header, body []byte) error {
	if h.Op != c.op {
		return broken("reply to %s, where %s was asked", h.Op, c.op)
	}
	if h.Code != wire.CodeOK {
		var m wire.ErrorReply
		if err := m.Decode(body); err != nil {
			return broken("%w", err)
		}
		return refusalOf(c.op.String(), h.Code, &m)
	}
	var err error
	if !c.left {
		err = c.take(body)
	} else if c.undo != nil {
		var given []orphan
		if given, err = c.undo(body); err == nil {
			l.keep(given...)
		}
	}
	if errors.Is(err, wire.ErrMalformed) {
		return broken("%w", err)
	}
	return err
}
