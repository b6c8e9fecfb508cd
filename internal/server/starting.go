package server

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/accept"
	"github.com/kvstored/kvstored/internal/wire"
)

const (
	// startingMillis is after what time a client comes back that was told that the
	// daemon is starting: a tenth of what the smallest arena takes on a slow machine.
	startingMillis = 100
	// startingTimeout is how long a client has for its hello meanwhile, and
	// startingGrace when the daemon is ready.
	startingTimeout = time.Second
	startingGrace   = 100 * time.Millisecond
	// startingHellos is how many are read at a time; others wait.
	startingHellos = 64
)

// Starting refuses hello with starting on each connection of l, whose connections are
// those of a Unix socket, until ctx ends. It closes l, and returns when all that were
// accepted have been answered. A client whose hello does not come in time is told the
// same: one that a busy machine has kept from writing it connects again.
func Starting(ctx context.Context, l net.Listener, log zerolog.Logger) error {
	turns := make(chan struct{}, startingHellos)
	return accept.Serve(ctx, l, log, func(ctx context.Context, conn net.Conn) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-ctx.Done():
			tellStarting(conn, 0)
			return
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now().Add(startingGrace)) })
		defer stop()
		refuseHello(conn)
	})
}

// refuseHello tells a client that the daemon is starting, or what is wrong with its
// hello.
func refuseHello(nc net.Conn) {
	conn, err := wire.NewConn(nc)
	if err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(startingTimeout)) // these fail only on a closed socket, as the read will
	_ = conn.SetWriteDeadline(time.Now().Add(startingTimeout))
	h, body, err := conn.ReadFrame()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		tellStarting(nc, 0)
		return
	case err != nil:
		return
	}
	if _, err = helloOf(h, body); err == nil {
		tellStarting(nc, h.ID)
		return
	}
	code := codeOf(err)
	_, _ = conn.Write(wire.AppendError(nil, wire.OpHello, h.ID, code, replyOf(err, code, err.Error()))) // a client that has left is told nothing
}

// tellStarting refuses a hello, or with the id 0 one that has not come, and says when to
// come back.
func tellStarting(nc net.Conn, id uint64) {
	err := refuse(wire.CodeStarting, "the daemon is starting: it takes its memory and opens its disk; try again in a moment")
	reply := replyOf(err, wire.CodeStarting, err.Error())
	reply.AfterMillis = startingMillis
	_ = nc.SetWriteDeadline(time.Now().Add(startingGrace))                             // it fits an empty socket
	_, _ = nc.Write(wire.AppendError(nil, wire.OpHello, id, wire.CodeStarting, reply)) // a client that has left is told nothing
}
