package zmtp

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// idle is how long a client of replays may say nothing.
const idle = 10 * time.Minute

// Replier answers requests of one connection after the other, a ROUTER socket
// whose clients are REQ or DEALER.
type Replier struct {
	// Answer sends the answers to a request, without the empty frame before it.
	// send waits for the client; an error ends the connection.
	Answer func(ctx context.Context, request [][]byte, send func(frames ...[]byte) error) error
	// Connections is the most clients at a time.
	Connections int
	Log         zerolog.Logger

	refused atomic.Uint64
}

// Serve takes clients until ctx ends. It closes l.
func (r *Replier) Serve(ctx context.Context, l net.Listener) error {
	greet := func(nc net.Conn) (*conn, error) {
		return handshake(nc, "ROUTER", maxCommand, "REQ", "DEALER", "ROUTER")
	}
	return serve(ctx, l, r.Connections, &r.refused, greet, r.serve, func(err error) {
		r.Log.Debug().Err(err).Msg("a client of replays left")
	})
}

// serve ends with an error only.
func (r *Replier) serve(ctx context.Context, c *conn) error {
	for {
		if err := c.SetReadDeadline(time.Now().Add(idle)); err != nil {
			return err
		}
		request, err := c.read()
		if err != nil {
			return err
		}
		empty := len(request[0]) == 0 // before the request, as REQ sends it
		if empty {
			request = request[1:]
		}
		err = r.Answer(ctx, request, func(frames ...[]byte) error {
			if empty {
				frames = append([][]byte{nil}, frames...)
			}
			return c.write(stall, frames...)
		})
		if err != nil {
			return err
		}
	}
}
