package server

import (
	"reflect"
	"slices"
	"time"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/key"
)

// Settings are the options that can change while a Server runs.
type Settings struct {
	Access *access.Policy // who may do what

	LeaseMaxAge time.Duration // of connections that are opened from now on
	PinMaxAge   time.Duration // of pins from now on
	Prefetch    Prefetch
	Retain      hint.ClaimLimits // of claims from now on

	ChunkTokens int    // of spaces that do not say
	Method      string // hash method of spaces that do not say
	SaveUnfull  bool   // a last, shorter chunk counts even if the request does not ask
}

// settings are the present ones. They are never changed, only replaced.
func (s *Server) settings() *Settings { return s.now.Load() }

// windowOf is what may be in flight for one job: no more than promotions may
// take of DRAM, for chunks read further ahead would only wait there for room, or
// take that of the chunks before them and be read again.
func windowOf(s *Server) int64 {
	return min(s.settings().Prefetch.WindowBytes, s.o.Stack.LoadRoom())
}

// Set replaces the settings, which are the server's from then on: requests that
// have begun are answered as they were, later ones are judged by the new policy, on
// connections that are open too. Jobs of users that may not read the space any more
// end, with their leases, and so do fills of users that may not write it; pins stay
// until they are ended or too old. A connection whose user may not connect any more
// is closed, and one that has mapped the arena for a user that may not map it any
// more, each with a line in the log. A mapping cannot be taken back: it stays with
// the client's process. It is safe for concurrent use.
func (s *Server) Set(to Settings) {
	if old := s.settings().Access; reflect.DeepEqual(old, to.Access) {
		to.Access = old // what was judged by it stays so
	}
	changed := to.Access != s.settings().Access
	s.wishes.claims.Set(to.Retain)
	s.now.Store(&to) // first: a connection that is not among the sessions yet finds it
	for _, c := range s.sessions.all() {
		c.recheck()
		if changed {
			c.revokeDenied()
		}
	}
}

// recheck closes a connection that would not be as it is by the present policy.
func (c *session) recheck() {
	p := c.server.settings().Access
	why := "the user of a client may not connect any more"
	switch {
	case p.Somewhere(c.uid) == 0:
	case c.mapped && !p.MayMap(c.uid):
		why = "a client has mapped the arena and may not any more; what is mapped stays so until its process ends"
	default:
		return
	}
	c.log.Warn().Uint32("uid", c.uid).Msg(why + "; its connection is closed")
	_ = c.conn.Close() // the session's reader ends, and gives back what it held
}

// lostRight is why a job or fill ends whose user has lost a right.
const lostRight = "its user may not use that space any more; see access"

// revokeDenied ends the jobs and fills that the present policy would not let begin.
// One that becomes the session's meanwhile sees to that itself.
func (c *session) revokeDenied() {
	c.whileOpen(func() {
		jobs, fills := c.live()
		for _, j := range jobs {
			j.revokeIfDenied()
		}
		for _, f := range fills {
			f.revokeIfDenied()
		}
	})
}

// has reports whether the session's user has rights in a space that it has open.
func (c *session) has(need access.Rights, id key.SpaceID) bool {
	p := c.server.settings().Access
	return p.Everywhere(c.uid)&need == need || p.Model(c.uid, c.server.catalog.space(id).Model)&need == need
}

func (j *job) revokeIfDenied() {
	chains := slices.Concat(j.spaces...)
	for r := range chains {
		if !j.session.has(access.Read, chains[r].Space) {
			j.revoke(lostRight)
			return
		}
	}
}

func (f *fill) revokeIfDenied() {
	for _, id := range f.spaces {
		if !f.session.has(access.Write, id) {
			f.revoke(lostRight)
			return
		}
	}
}
