package main

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// crowd bounds the connections of an HTTP server. One too many takes the place of
// the connection that has been idle for the longest, so that those that only stay
// open keep no probe out; where all are being answered it is closed itself.
type crowd struct {
	most int
	mu   struct {
		sync.Mutex
		order uint64
		idle  map[net.Conn]uint64 // not in a handler, and since when, in order
		busy  map[net.Conn]struct{}
	}
}

func newCrowd(most int) *crowd {
	c := &crowd{most: most}
	c.mu.idle, c.mu.busy = make(map[net.Conn]uint64), make(map[net.Conn]struct{})
	return c
}

type crowdKey struct{}

// attend bounds the connections of srv, which is not serving yet.
func (c *crowd) attend(srv *http.Server) {
	h := srv.Handler
	srv.ConnState = func(conn net.Conn, state http.ConnState) {
		if leaves := c.place(conn, state); leaves != nil {
			_ = leaves.Close() // its server notices
		}
	}
	srv.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, crowdKey{}, conn)
	}
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(crowdKey{}).(net.Conn)
		c.work(conn, true)
		defer c.work(conn, false)
		h.ServeHTTP(w, r)
	})
}

// place notes a connection and returns the one that has to leave for it, if any.
// Half a request is none: a connection is idle until a handler has it.
func (c *crowd) place(conn net.Conn, state http.ConnState) (leaves net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(c.mu.idle)+len(c.mu.busy) >= c.most {
			if leaves = c.longestIdle(); leaves == nil {
				return conn
			}
			delete(c.mu.idle, leaves)
		}
		c.rest(conn)
	case http.StateClosed, http.StateHijacked:
		delete(c.mu.idle, conn)
		delete(c.mu.busy, conn)
	}
	return leaves
}

// work notes that a connection's handler begins or ends.
func (c *crowd) work(conn net.Conn, begins bool) {
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
		c.rest(conn)
	}
}

// rest is called with the mutex held.
func (c *crowd) rest(conn net.Conn) {
	c.mu.order++
	c.mu.idle[conn] = c.mu.order
}

// longestIdle is called with the mutex held.
func (c *crowd) longestIdle() (conn net.Conn) {
	first := ^uint64(0)
	for idle, since := range c.mu.idle {
		if since < first {
			conn, first = idle, since
		}
	}
	return conn
}
