package server

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/socket"
	"github.com/kvstored/kvstored/internal/wire"
)

// identity tells users apart: those of Unix sockets by their uid, others by the
// host that they connect from.
type identity struct {
	uid  uint32
	host netip.Addr // zero for a Unix socket
}

func (id identity) String() string {
	if id.host.IsValid() {
		return "host " + id.host.String()
	}
	return fmt.Sprintf("user %d", id.uid)
}

// tenant is what one user has, or one host.
type tenant struct {
	id          identity
	admin       bool          // when its first connection came
	connections int           // the mutex of users guards it
	jobs        atomic.Int64  // jobs and fills
	waiting     atomic.Int64  // requests that a goroutine will answer
	loads       chan struct{} // places for loads of its jobs and warms
}

// maxLoads is how many chunks may come up from lower tiers at a time for the jobs and warms
// of one user: each takes a goroutine, and many more than a device reads at a time bring
// nothing.
const maxLoads = 1024

// users are those who have connections. The mutex is a leaf.
type users struct {
	limits *Limits
	mu     struct {
		sync.Mutex
		connections int
		admins      int // of them, those of administrators
		byID        map[identity]*tenant
	}
}

// Reasons of a refused connection, as they are counted.
const (
	refusedTotal  = iota // there are as many as there may be
	refusedUser          // of one user
	refusedDenied        // who may not connect, or speaks another protocol or version
	refusedMemory        // for want of memory
	refusedReasons
)

var refusedNames = [refusedReasons]string{"connections", "uid_connections", "hello", "memory"}

// enter counts a connection, or says why there may be no more.
func (us *users) enter(id identity, admin bool) (u *tenant, reason int, err error) {
	us.mu.Lock()
	defer us.mu.Unlock()
	if u = us.mu.byID[id]; u == nil {
		u = &tenant{id: id, admin: admin, loads: make(chan struct{}, maxLoads)}
	}
	if reason, err = us.room(u, admin); err != nil {
		return nil, reason, err
	}
	us.mu.byID[id] = u
	u.connections++
	us.mu.connections++
	if u.admin {
		us.mu.admins++
	}
	return u, 0, nil
}

// room is an error unless a user may have one more connection. Called with the mutex
// held.
func (us *users) room(u *tenant, admin bool) (reason int, err error) {
	l := us.limits
	have, most, kept := us.mu.connections, l.Connections, ""
	if !admin && l.AdminConnections > 0 {
		most -= l.AdminConnections
		have -= min(us.mu.admins, l.AdminConnections)
		kept = fmt.Sprintf(" and keeps %d for its administrators", l.AdminConnections)
	}
	if have >= most {
		return refusedTotal, refuse(wire.CodeOverBudget, "the daemon has its %d connections%s; use fewer, or raise limits.connections", most, kept)
	}
	if u.connections >= l.UIDConnections {
		return refusedUser, refuse(wire.CodeOverBudget, "%v has its %d connections; use fewer, or raise limits.uid_connections", u.id, l.UIDConnections)
	}
	return 0, nil
}

// leave ends a connection's count, and forgets a user with its last one.
func (us *users) leave(u *tenant) {
	us.mu.Lock()
	defer us.mu.Unlock()
	us.mu.connections--
	if u.admin {
		us.mu.admins--
	}
	if u.connections--; u.connections == 0 {
		delete(us.mu.byID, u.id)
	}
}

// roomForJobs is an error unless the user may have another job or fill.
func (u *tenant) roomForJobs(most int) error {
	if n := u.jobs.Load(); n >= int64(most) {
		return refuse(wire.CodeOverBudget, "%v has %d jobs and fills; release some first", u.id, n)
	}
	return nil
}

// Enter counts a connection that a front end serves, until leave is called. It is an
// error where its user has too many.
func (s *Server) Enter(conn net.Conn) (leave func(), err error) {
	id, admin := identity{}, false
	if conn.LocalAddr().Network() == "unix" {
		if id.uid, admin, err = s.peer(conn); err != nil {
			return nil, err
		}
	} else if at, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
		id.host = at.Addr().WithZone("").Unmap()
	}
	a, reason, err := s.users.enter(id, admin)
	if err != nil {
		s.count.refused[reason].Add(1)
		return nil, err
	}
	return func() { s.users.leave(a) }, nil
}

// peer tells who is at the other end of a socket, and whether as administrator.
func (s *Server) peer(nc net.Conn) (uid uint32, admin bool, err error) {
	uid, err = socket.PeerOf(nc)
	return uid, err == nil && s.settings().Access.Everywhere(uid)&access.Admin != 0, err
}
