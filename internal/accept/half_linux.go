package accept

import "golang.org/x/sys/unix"

// halfClosed is the event of a peer that has closed its sending side.
const halfClosed = unix.POLLRDHUP
