package budget

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/socket"
)

const (
	// maxGhosts bounds the descriptors that are kept for ghosts.
	maxGhosts = 1024
	// ghostEvery is how often ghosts are looked at.
	ghostEvery = time.Second
)

// ghost is what a connection has left in the kernel. What a client on this machine
// has not read stays there, charged to the control group of the daemon, until the
// client reads it or closes its end too: closing ours does not help. So it is
// charged to its holder until then.
type ghost struct {
	holder Holder
	bytes  int64
	fd     int // a duplicate, by which the kernel is asked
}

// haunt keeps what an account that closes has left in its socket.
func (b *Budget) haunt(a *Account) {
	s := &a.outbox
	if s.raw == nil || s.charged.Load() == 0 {
		return
	}
	n := unread(s.raw)
	if n <= freeBytes {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mu.ghosts) >= maxGhosts {
		return
	}
	fd, err := socket.Duplicate(s.raw)
	if err != nil {
		return
	}
	b.mu.ghosts = append(b.mu.ghosts, ghost{a.holder, n, fd})
	b.holding(a.holder).used += n
	b.holding(a.holder).ghosts += n
	b.mu.used += n
	b.sockets.Add(n)
	base.Poke(b.died)
}

// exorcise looks at the ghosts, and reports how many are left. One goroutine at a
// time may. The kernel is asked without the mutex: meanwhile haunt may add ghosts
// behind those that are looked at, and nothing else changes the list.
func (b *Budget) exorcise() int {
	b.mu.Lock()
	fds := make([]int, len(b.mu.ghosts))
	for i, g := range b.mu.ghosts {
		fds[i] = g.fd
	}
	b.mu.Unlock()
	unread := make([]int64, len(fds))
	for i, fd := range fds {
		unread[i] = b.unread(fd)
	}
	for i, fd := range fds {
		if unread[i] == 0 {
			_ = unix.Close(fd)
		}
	}
	return b.shrink(unread)
}

// shrink lowers the first ghosts to their unread bytes, drops those that have
// none, and reports how many ghosts there are then.
func (b *Budget) shrink(unread []int64) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.mu.ghosts[:0]
	for i, g := range b.mu.ghosts {
		n := g.bytes
		if i < len(unread) {
			n = unread[i]
		}
		gone := g.bytes - n
		h := b.mu.holders[g.holder]
		h.used -= gone
		h.ghosts -= gone
		b.mu.used -= gone
		b.sockets.Add(-gone)
		if g.bytes = n; n > 0 {
			left = append(left, g)
			continue
		}
		b.drop(g.holder)
	}
	clear(b.mu.ghosts[len(left):])
	b.mu.ghosts = left
	b.mu.freed.Wake()
	return len(left)
}

// watchGhosts looks at the ghosts while there are any, until ctx ends.
func (b *Budget) watchGhosts(ctx context.Context) {
	for {
		select {
		case <-b.died:
		case <-ctx.Done():
			return
		}
		for b.exorcise() > 0 {
			if base.Sleep(ctx, ghostEvery) != nil {
				return
			}
		}
	}
}

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

// holderOf is who is at the other end of a connection. Clients of which that is
// not known are one holder, the unspecified address.
func holderOf(conn net.Conn) Holder {
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return Holder{Address: tcp.AddrPort().Addr().Unmap().WithZone("")}
	}
	if uid, err := socket.PeerOf(conn); err == nil {
		return Holder{UID: uid}
	}
	return Holder{Address: netip.IPv6Unspecified()}
}
