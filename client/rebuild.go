package client

import (
	"context"

	"github.com/kvstored/kvstored/internal/wire"
)

// Rebuilt is what a rebuild of the disk tier's index has done so far.
type Rebuilt = wire.RebuildReply

// Rebuild has the daemon make the index of its disk tier anew, while it serves,
// and returns at once: Rebuilt tells how far that is. It goes on when the
// connection ends. It is an error where the disk tier is off, is being scanned,
// or has a rebuild under way. It needs RightAdmin.
func (c *Client) Rebuild(ctx context.Context) (Rebuilt, error) { return c.rebuild(ctx, true) }

// Rebuilt tells how far a rebuild is, or what the last one did since the disk
// tier was opened, for any client. It needs RightAdmin.
func (c *Client) Rebuilt(ctx context.Context) (Rebuilt, error) { return c.rebuild(ctx, false) }

func (c *Client) rebuild(ctx context.Context, begin bool) (m Rebuilt, err error) {
	err = c.link.do(ctx, wire.OpRebuild, &wire.RebuildRequest{Begin: begin}, m.Decode, nil)
	return m, err
}
