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
