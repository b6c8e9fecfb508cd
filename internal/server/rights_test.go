package server

import (
	"os"
	"testing"

	"github.com/kvstored/kvstored/internal/wire"
)

func TestRights(t *testing.T) {
	const a, b, c = 1001, 1002, 1003
	const user, admin = wire.RightRead | wire.RightWrite, wire.RightRead | wire.RightWrite | wire.RightAdmin
	for _, tc := range []struct {
		allow, admins []uint32
		uid           uint32
		want          wire.Rights
	}{
		{nil, nil, 0, admin},
		{nil, nil, uint32(os.Getuid()), admin},
		{nil, nil, a, user},
		{[]uint32{a}, nil, a, user},
		{[]uint32{a}, nil, b, 0},
		{[]uint32{a}, nil, 0, admin},
		{[]uint32{a}, []uint32{b}, b, admin},
		{[]uint32{a}, []uint32{b}, c, 0},
		{nil, []uint32{b}, a, user},
		{nil, []uint32{b}, 0, admin},
	} {
		o := Settings{AllowUIDs: tc.allow, AdminUIDs: tc.admins}
		if got := o.rights(tc.uid); got != tc.want {
			t.Errorf("allow %d, admins %d, uid %d: %b, want %b", tc.allow, tc.admins, tc.uid, got, tc.want)
		}
	}
}

// Who is no administrator frees, clears and switches nothing.
func TestNeedsAdmin(t *testing.T) {
	for _, op := range []wire.Op{wire.OpPins, wire.OpRevoke, wire.OpPolicy, wire.OpClear, wire.OpPurge, wire.OpSpaces, wire.OpScrub, wire.OpRebuild} {
		c := session{server: new(Server), rights: wire.RightRead | wire.RightWrite}
		if err := c.handle(wire.Header{Op: op}, nil); statusOf(err) != wire.StatusDenied {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// Every operation that changes what others see needs the right to write.
func TestNeeded(t *testing.T) {
	for op := range handlers {
		writes := needed[op]&wire.RightWrite != 0
		switch op {
		case wire.OpReserve, wire.OpCommit, wire.OpAbort, wire.OpPut, wire.OpDelete, wire.OpFlush:
			if !writes {
				t.Errorf("%s needs %b", op, needed[op])
			}
		default:
			if writes {
				t.Errorf("%s needs %b", op, needed[op])
			}
		}
	}
}
