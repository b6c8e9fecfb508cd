package lm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/blob"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/ledger"
)

// requestTimeout bounds the work of one request in the store, also where a
// device hangs.
const requestTimeout = 10 * time.Second

var (
	errMalformed = errors.New("malformed request")
	// errDenied ends a connection: a put is not answered, and one that is passed
	// over would leave an older payload under its key.
	errDenied = errors.New("a put without the write right; see access")
)

// session is one connection.
type session struct {
	server  *Server
	conn    net.Conn
	peer    access.Peer // nil: may do everything
	account *budget.Account
	turn    *fair.Turn
	ctx     context.Context // ends when the server stops or the client has left
	work    context.Context // of the requests: ends closeAfter later
	owner   ledger.Owner
	inside  bool // in the middle of a request
	closing atomic.Bool
}

// Read reads from the client. In the middle of a request it must not take for
// ever.
func (c *session) Read(p []byte) (int, error) {
	c.turn.Leave()
	if c.inside {
		if err := c.conn.SetReadDeadline(time.Now().Add(c.server.o.StallTimeout)); err != nil {
			return 0, err
		}
	}
	if c.closing.Load() {
		return 0, net.ErrClosed
	}
	n, err := c.conn.Read(p)
	c.server.count.read.Add(uint64(n))
	if c.inside && n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && !c.closing.Load() {
		c.account.Closed(budget.Stalled)
	}
	return n, err
}

// serve answers requests until the client goes, or the server stops.
func (c *session) serve() {
	work, cut := context.WithCancel(context.WithoutCancel(c.ctx))
	defer cut()
	c.work = work
	defer context.AfterFunc(c.ctx, func() {
		c.closing.Store(true)
		_ = c.conn.SetReadDeadline(time.Now())
		_ = time.AfterFunc(closeAfter, func() {
			cut()
			_ = c.conn.Close()
		})
	})()
	for !c.closing.Load() {
		if err := c.next(); err != nil {
			if errors.Is(err, errDenied) {
				c.server.trouble.Warn().Err(err).Msg("an lm:// client is disconnected")
			}
			if errors.Is(err, errMalformed) {
				c.server.count.malformed.Add(1)
				c.server.o.Log.Debug().Err(err).Msg("lm connection closed")
			}
			return
		}
	}
}

// next reads and answers one request. An error ends the connection.
func (c *session) next() error {
	var b [requestBytes]byte
	c.inside = false
	if err := c.conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	n, err := c.Read(b[:])
	if err != nil {
		return err
	}
	c.inside = true
	if _, err := io.ReadFull(c, b[n:]); err != nil {
		return err
	}
	c.server.count.requests.Add(1)
	req := parseRequest(&b)
	ctx, cancel := context.WithTimeout(c.work, requestTimeout)
	defer cancel()
	if err := c.turn.Begin(ctx, time.Now()); err != nil {
		return err
	}
	defer func() { c.turn.End(time.Now()) }()
	switch req.command {
	case cmdPut:
		if !c.may(access.Write) {
			return errDenied
		}
		return c.put(ctx, &req)
	case cmdGet, cmdExist:
		if !c.may(access.Read) {
			return c.code(false) // the protocol has no other word
		}
		if req.command == cmdGet {
			return c.get(ctx, &req)
		}
		return c.code(c.server.o.Store.Has(ctx, req.key))
	case cmdHealth:
		return c.code(true)
	case cmdList:
		return c.code(false)
	}
	return fmt.Errorf("%w: command %d", errMalformed, req.command)
}

// may reports whether the client has rights.
func (c *session) may(need access.Rights) bool { return c.peer == nil || c.peer.Rights()&need == need }

// put stores a payload. It is not answered: one that cannot be kept will be
// missed, and so will be the payload stored under its key before. Where that is
// not certain the connection ends.
func (c *session) put(ctx context.Context, req *request) error {
	if req.length < 0 {
		return fmt.Errorf("%w: a payload of %d bytes", errMalformed, req.length)
	}
	f, err := c.server.o.Store.Begin(ctx, c.owner, req.key, metaBytes+int(req.length))
	if err != nil {
		if _, cerr := io.CopyN(io.Discard, c, int64(req.length)); cerr != nil {
			return cerr
		}
		return c.drop(ctx, req, err)
	}
	f.Arrived(ctx, copy(f.Value(), req.meta))
	for rest := f.Value()[metaBytes:]; len(rest) > 0; {
		n, err := c.Read(rest)
		if err != nil {
			f.Abort()
			return err
		}
		f.Arrived(ctx, n)
		rest = rest[n:]
	}
	if _, err := f.Store(ctx, blob.Always, time.Time{}); err != nil {
		return c.drop(ctx, req, err)
	}
	c.server.count.stored.Add(1)
	return nil
}

// drop deletes the older payload under the key of one that is not kept.
func (c *session) drop(ctx context.Context, req *request, why error) error {
	c.server.count.dropped.Add(why)
	c.server.trouble.Warn().Err(why).Stringer("reason", blob.ReasonOf(why)).Msg("a payload of an lm:// client is dropped; it will be missed")
	_, err := c.server.o.Store.Delete(ctx, req.key)
	if err != nil {
		c.server.trouble.Warn().Err(err).Msg("an lm:// client is disconnected: what it stored before under that key may be there yet")
	}
	return err
}

func (c *session) get(ctx context.Context, req *request) error {
	v, err := c.server.o.Store.Get(ctx, c.owner, req.key)
	if err != nil || len(v.Bytes()) < metaBytes {
		if err == nil {
			v.Release()
		}
		c.server.count.misses.Add(1)
		return c.code(false)
	}
	defer v.Release()
	c.server.count.hits.Add(1)
	var reply [replyBytes]byte
	payload := v.Bytes()[metaBytes:]
	putReply(&reply, codeOK, int32(len(payload)), v.Bytes()[:metaBytes])
	return c.write(net.Buffers{reply[:], payload})
}

// code answers without a payload.
func (c *session) code(ok bool) error {
	var reply [replyBytes]byte
	code := int32(codeFail)
	if ok {
		code = codeOK
	}
	putReply(&reply, code, 0, noMeta[:])
	return c.write(net.Buffers{reply[:]})
}

// write sends a reply, in one piece as far as the socket takes it, to a client
// that goes on reading.
func (c *session) write(b net.Buffers) error {
	c.turn.Leave()
	left := 0
	for _, p := range b {
		left += len(p)
	}
	for {
		err := c.conn.SetWriteDeadline(time.Now().Add(c.server.o.StallTimeout))
		if err != nil {
			return err
		}
		if err := c.account.Sending(left); err != nil {
			return err
		}
		n, err := b.WriteTo(c.conn)
		c.account.Sent()
		c.server.count.written.Add(uint64(n))
		if err != nil && n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && !c.closing.Load() {
			c.account.Closed(budget.Unread)
		}
		if err == nil || n == 0 {
			return err
		}
		left -= int(n)
		var late net.Error
		if !errors.As(err, &late) || !late.Timeout() {
			return err
		}
	}
}
