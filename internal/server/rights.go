package server

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/socket"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// scope is where an operation takes its rights.
type scope uint8

const (
	somewhere  scope = iota // in one space or another: it is about the connection, or the handler judges each space
	inSpaces                // in every space that the request is about
	everywhere              // in all there can be: it tells of them, or changes them
)

// rights is what a policy lets the user of a session do. Each open space has its own
// rights besides. It is the reader's alone.
type rights struct {
	session               *session
	spaces                spaces
	policy                *access.Policy // that was asked last
	somewhere, everywhere access.Rights
	asks                  access.Rights // that the request at hand takes in its spaces
}

// judge asks the present policy about the session's user and its open spaces.
func (r *rights) judge() {
	p, uid := r.session.server.settings().Access, r.session.uid
	r.policy, r.somewhere, r.everywhere = p, p.Somewhere(uid), p.Everywhere(uid)
	for i := range r.spaces.list {
		sp := &r.spaces.list[i]
		sp.rights = p.Model(uid, sp.model)
	}
}

// allowed is an error unless the session may ask for an operation at all. What
// that takes in the spaces of the request is asked for by space and may.
func (r *rights) allowed(op wire.Op, n *operation) error {
	if r.session.server.settings().Access != r.policy {
		r.judge()
	}
	r.asks = n.rights
	have := r.somewhere
	if n.scope == everywhere {
		have = r.everywhere
	}
	if have&n.rights == n.rights {
		return nil
	}
	where := ""
	if n.scope == everywhere && r.policy.Ruled() {
		where = " in every space"
	}
	return refuse(wire.CodeDenied, "%s takes the %s right%s, which user %d lacks; see %s", op, n.rights, where, r.session.uid, r.see())
}

// denied refuses what the session's user may not do in a space.
func (r *rights) denied(format string, args ...any) error {
	return refuse(wire.CodeDenied, "user %d may not %s; see %s", r.session.uid, fmt.Sprintf(format, args...), r.see())
}

// see names the keys of the configuration that decide.
func (r *rights) see() string {
	if r.policy.Ruled() {
		return "access"
	}
	return "listen.allow_uids and listen.admin_uids"
}

// openSpaceOf opens a space in which the session has any right.
func (r *rights) openSpaceOf(sp key.Space) (wire.SpaceInfo, error) {
	rights := r.policy.Model(r.session.uid, sp.Model)
	if rights == 0 {
		return wire.SpaceInfo{}, r.denied("open a space of model %.80q", sp.Model)
	}
	return r.spaces.open(sp, rights)
}

// space is an open space in which the session has the rights that the request at
// hand takes.
func (r *rights) space(handle uint32) (openSpace, error) {
	sp, err := r.spaces.get(handle)
	if err == nil && sp.rights&r.asks != r.asks {
		err = r.denied("%s what is of model %.80q", r.asks, sp.model)
	}
	return sp, err
}

// rightsIn is what a user may do in a space by the present policy. A space of a front end is
// judged by that front, another by the model that a client has opened it as. In a space of
// unknown origin a user may do what it may in all there can be.
func (s *Server) rightsIn(uid uint32, id key.SpaceID) access.Rights {
	p := s.settings().Access
	if front, ok := s.o.Fronts[id]; ok {
		return p.Front(uid, front)
	}
	if model := s.catalog.listed(id).name; model != "" {
		return p.Model(uid, model)
	}
	return p.Everywhere(uid)
}

// has reports whether a user has rights in a space.
func (s *Server) has(uid uint32, need access.Rights, id key.SpaceID) bool {
	return s.rightsIn(uid, id)&need == need
}

// may is an error unless the session has the rights in the space of a job or fill that the
// request at hand takes.
func (r *rights) may(id key.SpaceID) error {
	if r.everywhere&r.asks == r.asks || r.session.server.has(r.session.uid, r.asks, id) {
		return nil
	}
	return r.denied("%s what is of that job or fill", r.asks)
}

// blind reports whether the session's user may not read a space. Then a request
// that stores is told that a chunk exists, and nothing about it: a checksum or a
// length would tell about bytes of others.
func (r *rights) blind(id key.SpaceID) bool {
	return r.everywhere&access.Read == 0 && !r.session.server.has(r.session.uid, access.Read, id)
}

// endsPin reports whether the session may end a pin by its name. With rules a name
// counts within its user, but for one that may administer everything.
func (r *rights) endsPin(by *hint.Claimant) bool {
	return !r.policy.Ruled() || by.UID == r.session.uid || r.everywhere&access.Admin != 0
}

// admit tells who is at the other end of a socket; an error if that user may not
// connect.
func (o *Settings) admit(conn net.Conn) (uid uint32, err error) {
	if uid, err = socket.PeerOf(conn); err != nil {
		return 0, fmt.Errorf("hello: %w", err)
	}
	switch p := o.Access; {
	case p.Somewhere(uid) != 0:
		return uid, nil
	case p.Ruled():
		return 0, refuse(wire.CodeDenied, "user %d may not connect; no rule of access gives it a right", uid)
	}
	return 0, refuse(wire.CodeDenied, "user %d may not connect; add it to listen.allow_uids", uid)
}

// Peer is who is at the other end of a front end's connection. It belongs to the
// connection's goroutine.
type Peer struct {
	server *Server
	front  string
	user   bool // there is a user id; over TCP there is none
	uid    uint32
	policy *access.Policy
	rights access.Rights // by policy
}

// Admit finds out who is at the other end of a connection of a front end. It is an error
// if that user, or a connection without a user id, may do nothing there.
func (s *Server) Admit(front string, conn net.Conn) (*Peer, error) {
	p := &Peer{server: s, front: front}
	if conn.LocalAddr().Network() == "unix" {
		var err error
		if p.uid, err = socket.PeerOf(conn); err != nil {
			return nil, fmt.Errorf("%s: %w", front, err)
		}
		p.user = true
	}
	p.judge()
	switch {
	case p.rights != 0:
		return p, nil
	case !p.policy.Ruled():
		return nil, refuse(wire.CodeDenied, "user %d may not connect; add it to listen.allow_uids", p.uid)
	case p.user:
		return nil, refuse(wire.CodeDenied, "user %d may not connect; no rule of access with front: %s gives it a right", p.uid, front)
	}
	return nil, refuse(wire.CodeDenied, "connections without a user id may do nothing; no rule of access with front: %s gives them a right", front)
}

// Rights are what the peer may do by the present policy.
func (p *Peer) Rights() access.Rights {
	if p.server.Access() != p.policy {
		p.judge()
	}
	return p.rights
}

func (p *Peer) judge() {
	p.policy = p.server.Access()
	if p.rights = p.policy.NoUser(p.front); p.user {
		p.rights = p.policy.Front(p.uid, p.front)
	}
}

// tenant is what one user has, or one host.
type tenant struct {
	id          budget.Holder
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
		byID        map[budget.Holder]*tenant
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
func (us *users) enter(id budget.Holder, admin bool) (u *tenant, reason int, err error) {
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

// enter counts a connection. Who may not connect is told so after its hello, in
// which it may ask for another version.
func (s *Server) enter(conn net.Conn) (*tenant, error) {
	id := budget.HolderOf(conn)
	admin := !id.Address.IsValid() && s.Access().Everywhere(id.UID)&access.Admin != 0
	u, reason, err := s.users.enter(id, admin)
	if err != nil {
		s.count.refused[reason].Add(1)
	}
	return u, err
}

// Enter counts a connection that a front end serves, until leave is called. It is an
// error where its user has too many.
func (s *Server) Enter(conn net.Conn) (leave func(), err error) {
	u, err := s.enter(conn)
	if err != nil {
		return nil, err
	}
	return func() { s.users.leave(u) }, nil
}
