//go:build !linux

package budget

import "syscall"

// peerUID does not know.
func peerUID(syscall.RawConn) (uid uint32, ok bool) { return 0, false }
