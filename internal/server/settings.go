package server

import "time"

// Settings are the options that can change while a Server runs.
type Settings struct {
	AllowUIDs []uint32 // who may connect; none = whoever the socket's mode admits
	AdminUIDs []uint32 // who may administer besides root and this process's user

	LeaseMaxAge time.Duration // of connections that are opened from now on
	PinMaxAge   time.Duration // of pins from now on
	Prefetch    Prefetch

	ChunkTokens int    // of spaces that do not say
	Method      string // hash method of spaces that do not say
	SaveUnfull  bool   // a last, shorter chunk counts even if the request does not ask
}

// settings are the present ones. They are never changed, only replaced.
func (s *Server) settings() *Settings { return s.now.Load() }

// Set replaces the settings, which are the server's from then on. Requests that
// have begun go on as they were. A connection whose user has lost a right is
// closed, with a line in the log: its client may connect again with the rights
// that are left. It is safe for concurrent use.
func (s *Server) Set(to Settings) {
	s.now.Store(&to) // first: a connection that is not among the sessions yet finds it
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.mu.sessions {
		c.recheck()
	}
}

// recheck closes a connection whose user has lost a right since hello.
func (c *session) recheck() {
	left := c.server.settings().rights(c.uid)
	if c.rights&^left == 0 {
		return
	}
	c.log.Warn().Uint32("uid", c.uid).Bool("may_connect", left != 0).Msg("the user of a client has lost a right; its connection is closed")
	_ = c.conn.Close() // the session's reader ends, and gives back what it held
}
