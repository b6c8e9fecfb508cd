package httpd

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// connLimit bounds the connections of an HTTP server. One too many takes the place of
// the connection that has been idle for the longest, so that those that only stay
// open keep no probe out; where all are being answered it is closed itself.
type connLimit struct {
	limit int
	mu    struct {
		sync.Mutex
		order    uint64
		idle     map[net.Conn]uint64 // not in a handler, and since when, in order
		busy     map[net.Conn]struct{}
		handlers int
		ends     chan struct{} // closed when the last handler has returned; nil before the end
	}
}

func newConnLimit(limit int) *connLimit {
	c := &connLimit{limit: limit}
	c.mu.idle, c.mu.busy = make(map[net.Conn]uint64), make(map[net.Conn]struct{})
	return c
}

// buffered is a connection of a socket.
type buffered interface {
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
}

type connKey struct{}

// Conn is the connection that a request came on.
func Conn(ctx context.Context) net.Conn {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	return conn
}

// wrap bounds the connections of srv, which is not serving yet.
func (c *connLimit) wrap(srv *http.Server) {
	h := srv.Handler
	srv.ConnState = func(conn net.Conn, state http.ConnState) {
		if evicted := c.track(conn, state); evicted != nil {
			_ = evicted.Close() // its server notices
		}
	}
	srv.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, conn)
	}
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := Conn(r.Context())
		if !c.begin(conn) {
			panic(http.ErrAbortHandler) // the connection is closed, without a word in the log
		}
		defer c.end(conn)
		h.ServeHTTP(w, r)
	})
}

// track notes a connection and returns the one that has to leave for it, if any.
// Half a request is none: a connection is idle until a handler has it.
func (c *connLimit) track(conn net.Conn, state http.ConnState) (evicted net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if s, ok := conn.(buffered); ok {
			_ = s.SetWriteBuffer(socketBytes) // it gives less without harm
			_ = s.SetReadBuffer(socketBytes)
		}
		if len(c.mu.idle)+len(c.mu.busy) >= c.limit {
			if evicted = c.longestIdle(); evicted == nil {
				return conn
			}
			delete(c.mu.idle, evicted)
		}
		c.markIdle(conn)
	case http.StateClosed, http.StateHijacked:
		delete(c.mu.idle, conn)
		delete(c.mu.busy, conn)
	}
	return evicted
}

// begin notes that a connection's handler begins; false where the server ends.
func (c *connLimit) begin(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.ends != nil {
		return false
	}
	c.mu.handlers++
	if _, idle := c.mu.idle[conn]; idle {
		delete(c.mu.idle, conn)
		c.mu.busy[conn] = struct{}{}
	}
	return true
}

// end notes that a handler has returned.
func (c *connLimit) end(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, busy := c.mu.busy[conn]; busy { // else it was closed meanwhile
		delete(c.mu.busy, conn)
		c.markIdle(conn)
	}
	if c.mu.handlers--; c.mu.handlers == 0 && c.mu.ends != nil {
		close(c.mu.ends)
	}
}

// drained has no handler begin any more, and returns a channel that is closed when
// none is left.
func (c *connLimit) drained() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.ends == nil {
		if c.mu.ends = make(chan struct{}); c.mu.handlers == 0 {
			close(c.mu.ends)
		}
	}
	return c.mu.ends
}

// markIdle is called with the mutex held.
func (c *connLimit) markIdle(conn net.Conn) {
	c.mu.order++
	c.mu.idle[conn] = c.mu.order
}

// longestIdle is called with the mutex held.
func (c *connLimit) longestIdle() (conn net.Conn) {
	first := ^uint64(0)
	for idle, since := range c.mu.idle {
		if since < first {
			conn, first = idle, since
		}
	}
	return conn
}
