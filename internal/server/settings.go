package server

import (
	"reflect"
	"time"

	"github.com/kvstored/kvstored/internal/access"
)

// Settings are the options that can change while a Server runs.
type Settings struct {
	Access *access.Policy // who may do what

	LeaseMaxAge time.Duration // of connections that are opened from now on
	PinMaxAge   time.Duration // of pins from now on
	Prefetch    Prefetch

	ChunkTokens int    // of spaces that do not say
	Method      string // hash method of spaces that do not say
	SaveUnfull  bool   // a last, shorter chunk counts even if the request does not ask
}

// settings are the present ones. They are never changed, only replaced.
func (s *Server) settings() *Settings { return s.now.Load() }

// Set replaces the settings, which are the server's from then on: requests that
// have begun go on as they were, later ones are judged by the new policy, on
// connections that are open too. A connection whose user may not connect any more
// is closed, and one that has mapped the arena for a user that may not map it any
// more, each with a line in the log. A mapping cannot be taken back: it stays with
// the client's process. It is safe for concurrent use.
func (s *Server) Set(to Settings) {
	if old := s.settings().Access; reflect.DeepEqual(old, to.Access) {
		to.Access = old // what was judged by it stays so
	}
	s.now.Store(&to) // first: a connection that is not among the sessions yet finds it
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.mu.sessions {
		c.recheck()
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
