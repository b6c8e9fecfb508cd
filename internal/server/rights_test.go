package server

import (
	"maps"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/wire"
)

// TestNeedsAdmin: a user that is no administrator frees, clears and switches
// nothing.
func TestNeedsAdmin(t *testing.T) {
	for _, op := range []wire.Op{wire.OpPins, wire.OpRevoke, wire.OpPolicy, wire.OpClear, wire.OpPurge, wire.OpSpaces, wire.OpScrub, wire.OpRebuild} {
		s := new(Server)
		s.now.Store(&Settings{Access: access.New(access.Options{Own: 1})})
		c := session{server: s, uid: 5}
		if err := c.handle(wire.Header{Op: op}, nil); statusOf(err) != wire.StatusDenied {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// TestNeeded: the table has a line for every operation but those that tell and
// change nothing; those that change what others see take a right to do so.
func TestNeeded(t *testing.T) {
	free := []wire.Op{wire.OpHello, wire.OpOpenSpace, wire.OpPing}
	writes := []wire.Op{wire.OpReserve, wire.OpCommit, wire.OpAbort, wire.OpPut, wire.OpDelete, wire.OpFlush}
	for op := range handlers {
		n, listed := needed[op]
		if listed == slices.Contains(free, op) {
			t.Errorf("%s: in the table %v", op, listed)
		}
		if (n.rights&access.Write != 0) != slices.Contains(writes, op) {
			t.Errorf("%s needs %s", op, n.rights)
		}
	}
	for op := range maps.Keys(needed) {
		if handlers[op] == nil {
			t.Errorf("%s is no operation", op)
		}
	}
}
