package server

import (
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/wire"
)

// TestNoAdmin: the operations that administrators once had here are unknown, also to
// one who may do everything.
func TestNoAdmin(t *testing.T) {
	s := new(Server)
	s.now.Store(&Settings{Access: access.New(access.Options{Own: 1})})
	c := reader{server: s, rights: rights{server: s, uid: 1}}
	for op := wire.Op(22); op < wire.OpHint; op++ {
		if err := c.handle(wire.Header{Op: op}, nil); codeOf(err) != wire.CodeUnknownOp {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// TestNeeded: the table has a line for every operation but those that tell and
// change nothing; those that change what others see take a right to do so.
func TestNeeded(t *testing.T) {
	free := []wire.Op{wire.OpHello, wire.OpOpenSpace, wire.OpPing, wire.OpCancel, wire.OpRenew}
	writes := []wire.Op{wire.OpReserve, wire.OpCommit, wire.OpAbort, wire.OpPut, wire.OpDelete, wire.OpFlush}
	for code, n := range operations {
		op := wire.Op(code)
		if n.handle == nil {
			if n.rights != 0 || n.scope != 0 || n.holds {
				t.Errorf("%s is no operation", op)
			}
			continue
		}
		if (n.rights == 0) != slices.Contains(free, op) {
			t.Errorf("%s takes %s", op, n.rights)
		}
		if (n.rights&access.Write != 0) != slices.Contains(writes, op) {
			t.Errorf("%s needs %s", op, n.rights)
		}
	}
}
