package server

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/kvstored/kvstored/internal/wire"
)

// rights is what a user may do; 0 for one who may not connect.
func (o *Settings) rights(uid uint32) wire.Rights {
	switch {
	case uid == 0, uid == uint32(os.Getuid()), slices.Contains(o.AdminUIDs, uid):
		return wire.RightRead | wire.RightWrite | wire.RightAdmin
	case len(o.AllowUIDs) == 0, slices.Contains(o.AllowUIDs, uid):
		return wire.RightRead | wire.RightWrite
	}
	return 0
}

// Admit is an error where the user at the other end of a Unix socket may not
// connect, which front ends ask as hello does.
func (s *Server) Admit(conn syscall.Conn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	_, _, err = s.settings().admit(raw)
	return err
}

// admit tells who is at the other end of a socket and what they may do.
func (o *Settings) admit(raw syscall.RawConn) (uid uint32, rights wire.Rights, err error) {
	if uid, err = peerUID(raw); err != nil {
		return 0, 0, fmt.Errorf("hello: %w", err)
	}
	if rights = o.rights(uid); rights == 0 {
		return 0, 0, refuse(wire.StatusDenied, "user %d may not connect; add it to listen.allow_uids", uid)
	}
	return uid, rights, nil
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
	wire.OpRebuild: wire.RightAdmin,
}
