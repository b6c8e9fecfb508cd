package server

import (
	"context"

	"github.com/kvstored/kvstored/internal/wire"
)

func handleSpaces(c *reader, h wire.Header, body []byte) error {
	var req wire.SpacesRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	return c.asyncReply(h, func(context.Context) (wire.Message, error) {
		uses, more := c.server.Spaces(c.uid, req.After)
		reply := wire.SpacesReply{More: more}
		for i := range uses {
			u := &uses[i]
			use := wire.SpaceUse{
				ID: u.ID, Chunks: uint64(u.Chunks), HotBytes: uint64(u.HotBytes), DiskBytes: uint64(u.DiskBytes), Connections: u.Connections,
			}
			switch {
			case u.Front != "":
				use.Kind, use.Front = wire.SpaceFront, u.Front
			case u.Opened:
				use.Kind, use.Space = wire.SpaceOpened, u.Space
			}
			reply.Spaces = append(reply.Spaces, use)
		}
		return &reply, nil
	})
}
