package server

import (
	"context"

	"github.com/kvstored/kvstored/internal/wire"
)

// purge makes one step; it ends with the connection, and who began can go on.
func (c *session) purge(h wire.Header, body []byte) error {
	var req wire.PurgeRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	return c.later(h, func(ctx context.Context) (wire.Message, error) {
		p, err := c.server.o.Stack.Purge(ctx, req.Space, req.After, req.Dry)
		return &wire.PurgeReply{Known: p.Known, Found: p.Found, Bytes: p.Bytes, Next: p.Next}, err
	})
}
