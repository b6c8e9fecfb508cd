package budget

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// peerUID is the user at the other end of a Unix socket.
func peerUID(raw syscall.RawConn) (uid uint32, ok bool) {
	err := raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if ok = err == nil; ok {
			uid = cred.Uid
		}
	})
	return uid, ok && err == nil
}
