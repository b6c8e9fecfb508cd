package daemon

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
		order uint64
		idle  map[net.Conn]uint64 // not in a handler, and since when, in order
		busy  map[net.Conn]struct{}
	}
}

func newConnLimit(limit int) *connLimit {
	c := &connLimit{limit: limit}
	c.mu.idle, c.mu.busy = make(map[net.Conn]uint64), make(map[net.Conn]struct{})
	return c
}

type connKey struct{}

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
		conn, _ := r.Context().Value(connKey{}).(net.Conn)
		c.handling(conn, true)
		defer c.handling(conn, false)
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

// handling notes that a connection's handler begins or ends.
func (c *connLimit) handling(conn net.Conn, begins bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, idle := c.mu.idle[conn]
	_, busy := c.mu.busy[conn]
	switch {
	case begins && idle:
		delete(c.mu.idle, conn)
		c.mu.busy[conn] = struct{}{}
	case !begins && busy: // else it was closed meanwhile
		delete(c.mu.busy, conn)
		c.markIdle(conn)
	}
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
