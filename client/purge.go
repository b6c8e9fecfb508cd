package client

import (
	"context"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// Purged counts the chunks and objects that a purge has deleted, or only
// counted, so far.
type Purged struct {
	Known uint64 // chunks that the daemon knew of, in any tier
	Found uint64 // objects that were in the shared tier besides
	Bytes uint64 // theirs
}

// Purge forgets everything of a space in every tier of the daemon, and then
// deletes the objects of the space that are left in the shared tier, also those
// that other machines stored. With dry it only counts; Found then has the known
// ones too. progress, if not nil, is called after each step of at most 1,000
// objects. After an error call it again: it goes on with the rest. It needs
// RightAdmin.
func (c *Client) Purge(ctx context.Context, id key.SpaceID, dry bool, progress func(Purged)) (Purged, error) {
	var sum Purged
	for req := (wire.PurgeRequest{Space: id, Dry: dry}); ; {
		var m wire.PurgeReply
		if err := c.link.do(ctx, wire.OpPurge, &req, m.Decode, nil); err != nil {
			return sum, err
		}
		sum.Known, sum.Found, sum.Bytes = sum.Known+m.Known, sum.Found+m.Found, sum.Bytes+m.Bytes
		if progress != nil {
			progress(sum)
		}
		if req.After = m.Next; req.After == "" {
			return sum, nil
		}
	}
}
