package server

import (
	"os"
	"slices"

	"github.com/kvstored/kvstored/internal/wire"
)

// rights is what a user may do; 0 for one who may not connect.
func (o *Options) rights(uid uint32) wire.Rights {
	switch {
	case uid == 0, uid == uint32(os.Getuid()), slices.Contains(o.AdminUIDs, uid):
		return wire.RightRead | wire.RightWrite | wire.RightAdmin
	case len(o.AllowUIDs) == 0, slices.Contains(o.AllowUIDs, uid):
		return wire.RightRead | wire.RightWrite
	}
	return 0
}

// needed is the right that each operation takes.
var needed = map[wire.Op]wire.Rights{
	wire.OpReserve: wire.RightWrite,
	wire.OpCommit:  wire.RightWrite,
	wire.OpAbort:   wire.RightWrite,
	wire.OpPut:     wire.RightWrite,
	wire.OpDelete:  wire.RightWrite,
	wire.OpFlush:   wire.RightWrite,
	wire.OpScrub:   wire.RightAdmin,
	wire.OpPins:    wire.RightAdmin,
	wire.OpRevoke:  wire.RightAdmin,
	wire.OpPolicy:  wire.RightAdmin,
	wire.OpClear:   wire.RightAdmin,
	wire.OpPurge:   wire.RightAdmin,
	wire.OpSpaces:  wire.RightAdmin,
}
