package server

import (
	"context"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// handlePurge makes one step, which ends with the connection; the reply says where the
// next one begins.
func handlePurge(c *reader, h wire.Header, body []byte) error {
	var req wire.PurgeRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	if err := mayPurge(c, req.Space); err != nil {
		return err
	}
	return c.asyncReply(h, func(ctx context.Context) (wire.Message, error) {
		p, err := c.server.o.Stack.Purge(ctx, req.Space, req.After, req.Dry)
		return &wire.PurgeReply{Known: p.Known, Found: p.Found, Bytes: p.Bytes, Next: p.Next}, err
	})
}

// mayPurge is an error unless the session's user may delete everything of a space.
func mayPurge(c *reader, id key.SpaceID) error {
	switch model, ok := c.server.MayPurge(c.uid, id); {
	case ok:
		return nil
	case model == "":
		return c.denied("purge a space that is not known here; open it first")
	default:
		return c.denied("purge a space of model %.80q", model)
	}
}
