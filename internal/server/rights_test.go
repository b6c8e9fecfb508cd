package server

import (
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/internal/wire/wiretest"
)

// TestRetired: the operations that have left the protocol are unknown, also to one who may
// do everything.
func TestRetired(t *testing.T) {
	schema, err := wiretest.Read("../../testdata/wire/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	s := new(Server)
	s.now.Store(&Settings{Access: access.New(access.Options{Own: 1})})
	c := reader{server: s, rights: rights{session: &session{server: s, uid: 1}}}
	want := []uint8{15, 22, 23, 24, 25, 26, 27, 28, 29, 32}
	if !slices.Equal(schema.Retired.Operations, want) {
		t.Errorf("%d are retired, want %d", schema.Retired.Operations, want)
	}
	for _, n := range want {
		op := wire.Op(n)
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
