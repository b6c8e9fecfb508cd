package socket

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
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
