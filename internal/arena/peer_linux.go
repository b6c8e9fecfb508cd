package arena

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Peer is the process at the other end of a Unix socket: the one that
// connected. It names that process even after it has ended and its number is
// used again. It is safe for concurrent use.
type Peer struct {
	pid  int // 0 when the process is in a namespace where it has no number for us
	fd   *os.File
	refs atomic.Int32 // the owner's and the quarantine's
}

// PeerOf returns the peer of a connected Unix socket. It fails when the
// process has ended already. The caller closes the peer.
func PeerOf(conn net.Conn) (*Peer, error) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("arena: peer: a connection of %T is none of the system's", conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("arena: peer: %w", err)
	}
	var p *Peer
	var perr error
	if err := raw.Control(func(fd uintptr) { p, perr = peerOf(int(fd)) }); err != nil {
		return nil, fmt.Errorf("arena: peer: %w", err)
	}
	if perr != nil {
		return nil, fmt.Errorf("arena: peer: %w", perr)
	}
	return p, nil
}

func peerOf(socket int) (*Peer, error) {
	cred, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, fmt.Errorf("SO_PEERCRED: %w", err)
	}
	fd, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if errors.Is(err, unix.ENOPROTOOPT) {
		// Before Linux 6.5. The number may have passed on to another process
		// since the connect; that one is then the one waited for.
		fd, err = unix.PidfdOpen(int(cred.Pid), 0)
	}
	if err != nil {
		return nil, fmt.Errorf("pidfd of process %d: %w", cred.Pid, err)
	}
	return newPeer(int(cred.Pid), fd), nil
}

func newPeer(pid, fd int) *Peer {
	p := &Peer{pid: pid, fd: os.NewFile(uintptr(fd), fmt.Sprintf("pidfd of %d", pid))}
	p.refs.Store(1)
	return p
}

// Ended reports whether the process has ended, all its threads included.
func (p *Peer) Ended() bool {
	fds := []unix.PollFd{{Fd: int32(p.fd.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// Close gives the owner's share back. A quarantine keeps its own.
func (p *Peer) Close() error {
	switch refs := p.refs.Add(-1); {
	case refs > 0:
		return nil
	case refs == 0:
		return p.fd.Close()
	default:
		panic("arena: peer was closed twice")
	}
}

// retain takes one more share. The caller holds one already.
func (p *Peer) retain() *Peer {
	p.refs.Add(1)
	return p
}
