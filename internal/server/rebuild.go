package server

import (
	"context"

	"github.com/kvstored/kvstored/internal/wire"
)

// handleRebuild makes the index of the disk tier anew. That goes on when the
// connection ends.
func handleRebuild(c *reader, h wire.Header, body []byte) error {
	var req wire.RebuildRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	return c.asyncReply(h, func(ctx context.Context) (wire.Message, error) {
		r, err := c.server.o.Stack.Rebuild(ctx, req.Begin)
		if err != nil {
			return nil, err
		}
		return &wire.RebuildReply{
			Running: r.Running, Bytes: r.Bytes, TotalBytes: r.TotalBytes, Headers: r.Headers,
			Restored: r.Restored, Dropped: r.Dropped, Resealed: r.Resealed, Micros: uint64(r.Duration.Microseconds()),
		}, nil
	})
}
