package socket

import (
	"fmt"
	"net"
	"syscall"
)

// PeerOf is the user at the other end of a connection of a Unix socket, see
// [PeerUID], or of one within the process that knows it.
func PeerOf(conn net.Conn) (uid uint32, err error) {
	local, ok := conn.(syscall.Conn)
	if !ok {
		if known, ok := conn.(interface{ PeerUID() uint32 }); ok {
			return known.PeerUID(), nil
		}
		return 0, fmt.Errorf("peer credentials: a connection of %T is none of the system's", conn)
	}
	raw, err := local.SyscallConn()
	if err != nil {
		return 0, err
	}
	return PeerUID(raw)
}

// PeerPID is the process at the other end of a connection of a Unix socket; 0 where that
// is not known.
func PeerPID(conn net.Conn) uint32 {
	if local, ok := conn.(syscall.Conn); ok {
		if raw, err := local.SyscallConn(); err == nil {
			return peerPID(raw)
		}
	}
	return 0
}
