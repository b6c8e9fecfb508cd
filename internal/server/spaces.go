package server

import (
	"bytes"
	"context"
	"slices"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// A page of spaces ends behind the first that fills it.
const (
	spacesPageBytes = 256 << 10
	spaceUseBytes   = 128 // of a space without its texts, at most
)

func handleSpaces(c *reader, h wire.Header, body []byte) error {
	var req wire.SpacesRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	policy := c.judged.policy // the reader's alone
	return c.asyncReply(h, func(context.Context) (wire.Message, error) {
		return c.server.spacesAfter(req.After, func(u *wire.SpaceUse) bool { return sees(policy, c.uid, u) }), nil
	})
}

// spacesAfter is the page of spaces whose ids come after one, of those that may be
// seen.
func (s *Server) spacesAfter(after key.SpaceID, seen func(*wire.SpaceUse) bool) *wire.SpacesReply {
	chunks := s.o.Stack.Spaces()
	ids := s.catalog.ids()
	for id := range chunks {
		ids = append(ids, id)
	}
	ids = slices.DeleteFunc(ids, func(id key.SpaceID) bool { return bytes.Compare(id[:], after[:]) <= 0 })
	slices.SortFunc(ids, func(a, b key.SpaceID) int { return bytes.Compare(a[:], b[:]) })
	ids = slices.Compact(ids)
	var reply wire.SpacesReply
	for filled := 0; len(ids) > 0 && filled < spacesPageBytes; ids = ids[1:] {
		use := wire.SpaceUse{
			ID: ids[0], Chunks: uint64(chunks[ids[0]]),
			HotBytes: uint64(s.o.Stack.HotBytes(ids[0])), DiskBytes: uint64(s.o.Stack.DiskBytes(ids[0])),
		}
		text := s.catalog.describe(&use)
		if name, ok := s.o.Fronts[use.ID]; ok {
			use.Kind, use.Front = wire.SpaceFront, name
		}
		if !seen(&use) {
			continue
		}
		filled += spaceUseBytes + text
		reply.Spaces = append(reply.Spaces, use)
	}
	reply.More = len(ids) > 0
	return &reply
}
