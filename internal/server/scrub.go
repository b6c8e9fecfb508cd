package server

import (
	"context"
	"math"

	"github.com/kvstored/kvstored/internal/wire"
)

// handleScrub reads everything on disk; it ends with the connection.
func handleScrub(c *reader, h wire.Header, body []byte) error {
	var req wire.ScrubRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	rate := int64(min(req.BytesPerSecond, math.MaxInt64))
	return c.asyncReply(h, func(ctx context.Context) (wire.Message, error) {
		s, err := c.server.o.Stack.Scrub(ctx, rate)
		if err != nil {
			return nil, err
		}
		return &wire.ScrubReply{Chunks: s.Chunks, Bytes: s.Bytes, Wrong: s.Wrong, Failed: s.Failed}, nil
	})
}
