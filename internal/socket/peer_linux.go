package socket

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// PeerUID is the user at the other end of a connection of a Unix socket, as the
// kernel noted it when the connection was made.
func PeerUID(raw syscall.RawConn) (uint32, error) {
	cred, err := peerOf(raw)
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}

// peerPID is the process there; 0 where it has no number for this one.
func peerPID(raw syscall.RawConn) uint32 {
	cred, err := peerOf(raw)
	if err != nil {
		return 0
	}
	return uint32(max(0, cred.Pid))
}

func peerOf(raw syscall.RawConn) (*unix.Ucred, error) {
	var cred *unix.Ucred
	var err error
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	return cred, nil
}
