package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/fair"
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
	*fair.User
	id          identity
	admin       bool // when its first connection came
	connections int  // the mutex of users guards these three
	pace        pace
	leaving     bool          // a timer looks whether it is forgotten
	jobs        atomic.Int64  // jobs and fills
	waiting     atomic.Int64  // requests that a goroutine will answer
	slowed      atomic.Int64  // connections in slow
	loads       chan struct{} // places for loads of its jobs and warms
	snapshots   chan struct{} // places for snapshots of events
}

// A connection that was not greeted is closed after slowEach, and as much more for each
// other one of its user that waits for that, up to slowMost.
const (
	slowEach = 100 * time.Millisecond
	slowMost = 5 * time.Second
)

// maxLoads is how many chunks may come up from lower tiers at a time for the jobs and warms
// of one user: each takes a goroutine, and many more than a device reads at a time bring
// nothing.
const maxLoads = 1024

// maxSnapshots is how many snapshots of events one user may have under way: each takes
// memory for all chunks until its client has read it.
const maxSnapshots = 4

// slow waits after a connection that was not greeted, until ctx ends at most. Meanwhile
// it counts as one of its user's, also where its client has left: else a user that
// connects with garbage again and again would take the daemon's time from others.
func (u *tenant) slow(ctx context.Context) {
	d := min(time.Duration(u.slowed.Add(1))*slowEach, slowMost)
	defer u.slowed.Add(-1)
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// users are those who have connections, or had very many a moment ago. The mutex is a
// leaf.
type users struct {
	gate    *fair.Gate
	limits  *Limits
	refused atomic.Int64 // connections that wait to be told why they are not served
	mu      struct {
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

// enter counts a connection, or says why there may be no more. Either waits before it is
// served, or told so.
func (us *users) enter(id identity, admin bool) (u *tenant, wait time.Duration, reason int, err error) {
	us.mu.Lock()
	defer us.mu.Unlock()
	if u = us.mu.byID[id]; u == nil {
		u = &tenant{User: us.gate.NewUser(), id: id, admin: admin, loads: make(chan struct{}, maxLoads), snapshots: make(chan struct{}, maxSnapshots)}
		us.mu.byID[id] = u
	}
	wait = u.pace.next(time.Now())
	if reason, err = us.room(u, admin); err != nil {
		us.forget(u)
		return nil, wait, reason, err
	}
	u.connections++
	us.mu.connections++
	if u.admin {
		us.mu.admins++
	}
	return u, wait, 0, nil
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

// forget forgets a user without connections once its pace is that of a new one. Called
// with the mutex held.
func (us *users) forget(u *tenant) {
	if u.connections > 0 || u.leaving {
		return
	}
	left := u.pace.left(time.Now())
	if left <= 0 {
		delete(us.mu.byID, u.id)
		return
	}
	u.leaving = true
	time.AfterFunc(left, func() {
		us.mu.Lock()
		defer us.mu.Unlock()
		u.leaving = false
		us.forget(u)
	})
}

// leave ends a connection's count.
func (us *users) leave(u *tenant) {
	us.mu.Lock()
	defer us.mu.Unlock()
	us.mu.connections--
	if u.admin {
		us.mu.admins--
	}
	u.connections--
	us.forget(u)
}

// roomForJobs is an error unless the user may have another job or fill.
func (u *tenant) roomForJobs(most int) error {
	if n := u.jobs.Load(); n >= int64(most) {
		return refuse(wire.CodeOverBudget, "%v has %d jobs and fills; release some first, or raise limits.uid_jobs", u.id, n)
	}
	return nil
}

// Enter counts a connection that a front end is to serve, or to tell why not, after the
// wait and until leave is called, which it is in either case. It returns the turns in
// which its requests compute. It is an error where its user has too many.
func (s *Server) Enter(conn net.Conn) (turn *fair.Turn, wait time.Duration, leave func(), err error) {
	id, admin := identity{}, false
	if conn.LocalAddr().Network() == "unix" {
		if id.uid, admin, err = s.peer(conn); err != nil {
			return nil, 0, func() {}, err
		}
	} else if at, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
		id.host = at.Addr().WithZone("").Unmap()
	}
	a, wait, reason, err := s.users.enter(id, admin)
	if err != nil {
		s.count.refused[reason].Add(1)
		wait, leave = s.hold(conn, wait)
		return nil, wait, leave, err
	}
	turn = a.NewTurn()
	return turn, wait, func() {
		turn.Leave()
		s.users.leave(a)
	}, nil
}

// refusedBytes is what a connection costs that waits to be told why it is not served:
// its goroutine, and about as much in the kernel.
const refusedBytes = 8 << 10

// hold is how long a refused connection waits, of the time that its user's pace says: all
// of it, or none where there is no room for another. Done is called when it is told.
func (s *Server) hold(conn net.Conn, wait time.Duration) (held time.Duration, done func()) {
	if wait == 0 {
		return 0, func() {}
	}
	if s.users.refused.Add(1) <= int64(s.o.Limits.Connections) {
		if account, err := s.o.Memory.Open(conn, budget.Native, refusedBytes); err == nil {
			return wait, func() {
				account.Close()
				s.users.refused.Add(-1)
			}
		}
	}
	s.users.refused.Add(-1)
	return 0, func() {}
}

// peer tells who is at the other end of a socket, and whether as administrator.
func (s *Server) peer(nc net.Conn) (uid uint32, admin bool, err error) {
	uid, err = socket.PeerOf(nc)
	return uid, err == nil && s.settings().Access.Everywhere(uid)&access.Admin != 0, err
}
