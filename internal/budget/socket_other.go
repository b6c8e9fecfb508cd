//go:build !linux

package budget

import "syscall"

// sendBuffer is not known: nothing is charged for sockets.
func sendBuffer(syscall.RawConn) int64 { return 0 }

func unread(syscall.RawConn) int64 { return 0 }

func unreadOf(int) int64 { return 0 }

func duplicate(syscall.RawConn) (dup int, ok bool) { return 0, false }

func closeFD(int) {}
