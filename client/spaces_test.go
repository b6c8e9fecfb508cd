package client

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

func TestSpacesOfAnOlderDaemon(t *testing.T) {
	c := mustDial(t, inlineSetup(), func(f *fake) {
		f.refuse(f.expect(wire.OpSpaces, new(wire.SpacesRequest)), ErrUnknownOp, "op(28) is unknown here")
	})
	if _, err := c.Spaces(t.Context()); !errors.Is(err, ErrUnknownOp) || !strings.Contains(err.Error(), "older than this client") {
		t.Error(err)
	}
}

// TestSpacesThatDoNotEnd: a daemon that goes round in circles is not followed.
func TestSpacesThatDoNotEnd(t *testing.T) {
	c := mustDial(t, inlineSetup(), func(f *fake) {
		page := wire.SpacesReply{Spaces: []wire.SpaceUse{{ID: key.SpaceID{1}}}, More: true}
		for _, after := range []key.SpaceID{{}, {1}} {
			var req wire.SpacesRequest
			r := f.expect(wire.OpSpaces, &req)
			if req.After != after {
				t.Errorf("the page after %x was asked for, want %x", req.After, after)
			}
			f.reply(r, &page)
		}
	})
	if _, err := c.Spaces(t.Context()); !errors.Is(err, ErrProtocol) {
		t.Error(err)
	}
}
