package socket

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// PeerOf is the user at the other end of a connection of a Unix socket, as the kernel
// noted it when the connection was made, or of one within the process that knows it.
func PeerOf(conn net.Conn) (uid uint32, err error) {
	if known, ok := conn.(interface{ PeerUID() uint32 }); ok {
		return known.PeerUID(), nil
	}
	cred, err := credentials(conn)
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}

// PeerPID is the process there; 0 where that is not known, or has no number for this one.
func PeerPID(conn net.Conn) uint32 {
	cred, err := credentials(conn)
	if err != nil {
		return 0
	}
	return uint32(max(0, cred.Pid))
}

func credentials(conn net.Conn) (cred *unix.Ucred, err error) {
	local, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("peer credentials: a connection of %T is none of the system's", conn)
	}
	raw, err := local.SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(failed, err); err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	return cred, nil
}
