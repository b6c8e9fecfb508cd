package socket

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// PeerUID is the user at the other end of a connection of a Unix socket, as the
// kernel noted it when the connection was made.
func PeerUID(raw syscall.RawConn) (uint32, error) {
	var cred *unix.Ucred
	var err error
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil {
		return 0, cerr
	}
	if err != nil {
		return 0, fmt.Errorf("peer credentials: %w", err)
	}
	return cred.Uid, nil
}
