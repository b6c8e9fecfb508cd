//go:build !linux

package wire

// closeOnExec: recvmsg cannot mark descriptors everywhere; parseFiles does then.
const closeOnExec = 0
