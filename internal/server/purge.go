package server

import (
	"context"

	"github.com/kvstored/kvstored/internal/access"
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

// mayPurge is an error unless the session's user may administer a space. Of one
// that was not opened since the start only the id is known, and not whose it is.
func mayPurge(c *reader, id key.SpaceID) error {
	if c.judged.everywhere&access.Admin != 0 {
		return nil
	}
	model := c.server.catalog.space(id).Model
	switch {
	case model == "":
		return c.denied("purge a space that is not known here; open it first")
	case c.judged.policy.Model(c.uid, model)&access.Admin == 0:
		return c.denied("purge a space of model %.80q", model)
	}
	return nil
}
