package budget

import (
	"time"
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
	s := &a.socket
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
	fd, ok := duplicate(s.raw)
	if !ok {
		return
	}
	b.mu.ghosts = append(b.mu.ghosts, ghost{a.holder, n, fd})
	b.holding(a.holder).used += n
	b.holding(a.holder).ghosts += n
	b.mu.used += n
	b.sockets.Add(n)
	select {
	case b.died <- struct{}{}:
	default:
	}
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
			closeFD(fd)
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

// watchGhosts looks at the ghosts while there are any, until done is closed.
func (b *Budget) watchGhosts(done <-chan struct{}) {
	for {
		select {
		case <-b.died:
		case <-done:
			return
		}
		for b.exorcise() > 0 {
			select {
			case <-time.After(ghostEvery):
			case <-done:
				return
			}
		}
	}
}
