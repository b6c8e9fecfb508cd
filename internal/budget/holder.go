package budget

import (
	"net"
	"net/netip"
	"strconv"
	"syscall"
)

// Holder is who answers for connections: a user of this machine, or where the
// connection tells none, an address.
type Holder struct {
	UID     uint32
	Address netip.Addr // valid: of a client that has no user id
}

// String is the holder for people.
func (h Holder) String() string {
	if h.Address.IsValid() {
		return h.Address.String()
	}
	return "user " + strconv.FormatUint(uint64(h.UID), 10)
}

// HolderOf is who is at the other end of a connection. Clients of which that is
// not known are one holder, the unspecified address.
func HolderOf(conn net.Conn) Holder {
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return Holder{Address: tcp.AddrPort().Addr().Unmap().WithZone("")}
	}
	if socket, ok := conn.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			if uid, ok := peerUID(raw); ok {
				return Holder{UID: uid}
			}
		}
	} else if known, ok := conn.(interface{ PeerUID() uint32 }); ok { // within this process
		return Holder{UID: known.PeerUID()}
	}
	return Holder{Address: netip.IPv6Unspecified()}
}
