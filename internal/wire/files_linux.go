package wire

import "golang.org/x/sys/unix"

// closeOnExec has recvmsg mark descriptors so that programs which are started do
// not get them.
const closeOnExec = unix.MSG_CMSG_CLOEXEC
