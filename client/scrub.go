package client

import (
	"context"

	"github.com/kvstored/kvstored/internal/wire"
)

// Scrubbed is what a scrub found.
type Scrubbed = wire.ScrubReply

// Scrub lets the daemon read everything on its disk, at most bytesPerSecond
// (0 means no limit), and delete what does not have its checksum. It ends with
// the connection. It needs RightAdmin.
func (c *Client) Scrub(ctx context.Context, bytesPerSecond uint64) (Scrubbed, error) {
	var m wire.ScrubReply
	err := c.link.do(ctx, wire.OpScrub, &wire.ScrubRequest{BytesPerSecond: bytesPerSecond}, m.Decode, nil)
	return m, err
}
