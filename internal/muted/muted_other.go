//go:build !linux

package muted

import "net"

// New returns c itself: there is no epoll here.
func New(c net.Conn) net.Conn { return c }
