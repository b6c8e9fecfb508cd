package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/kvstored/kvstored/internal/wire"
)

// SpaceUse is a space, how much is stored of it, and how many connections have
// it open. Its Kind says whether the daemon knows more of it than its id.
type SpaceUse = wire.SpaceUse

// SpaceKind says what the daemon knows of where a space comes from.
type SpaceKind = wire.SpaceKind

// The kinds of a space.
const (
	SpaceUnknown = wire.SpaceUnknown // it was not opened since the daemon started
	SpaceOpened  = wire.SpaceOpened  // Space says as what, but for the salt
	SpaceFront   = wire.SpaceFront   // Front is the name of a front end
)

// Spaces lists, by id, every space that has something stored, as far as the
// daemon knows, or that was opened since it started. It needs RightAdmin. A
// daemon from before there was this call answers ErrUnknownOp.
func (c *Client) Spaces(ctx context.Context) ([]SpaceUse, error) {
	var all []SpaceUse
	for req := (wire.SpacesRequest{}); ; {
		var m wire.SpacesReply
		if err := c.link.do(ctx, wire.OpSpaces, &req, m.Decode, nil); err != nil {
			if errors.Is(err, ErrUnknownOp) {
				err = fmt.Errorf("%w; it is older than this client and cannot list spaces: update it", err)
			}
			return nil, err
		}
		all = append(all, m.Spaces...)
		if !m.More {
			return all, nil
		}
		last := req.After
		if n := len(all); n > 0 {
			req.After = all[n-1].ID
		}
		if bytes.Compare(req.After[:], last[:]) <= 0 {
			return nil, broken("spaces: the page after %x ends with %x, and there are more", last, req.After)
		}
	}
}
