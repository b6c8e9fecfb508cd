package resp

import (
	"context"
	"crypto/subtle"
	"io"
	"net"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/socket"
)

func doPing(c *session, _ context.Context) {
	if len(c.args) == 1 {
		c.out.bulk(c.args[0])
		return
	}
	c.out.simple("PONG")
}

func doQuit(c *session, _ context.Context) {
	c.quit = true
	c.out.simple("OK")
}

// doAuth answers AUTH [user] password.
func doAuth(c *session, _ context.Context) {
	user := "default"
	if len(c.args) == 2 {
		user = string(c.args[0])
	}
	if c.login(user, c.args[len(c.args)-1]) {
		c.out.simple("OK")
	}
}

// login answers only if it fails.
func (c *session) login(user string, password []byte) bool {
	want, host := c.server.now.Load().Password, hostOf(c.conn)
	if want != "" {
		if !c.server.guesses.await(c.ctx, host) {
			c.server.count.logins.Add(1)
			c.fail("ERR too many logins wait after wrong passwords from this host; try again in some seconds")
			return false
		}
	}
	switch {
	case want == "":
		c.fail("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
		return false
	case user != "default" || subtle.ConstantTimeCompare([]byte(want), password) != 1:
		c.server.guesses.wrong(host)
		n := c.server.count.logins.Add(1)
		c.server.logins.Warn().Stringer("client", c.conn.RemoteAddr()).Str("listener", listener(c.conn)).Uint64("refused", n).
			Msg("a Redis client gave a wrong password or user")
		c.fail("WRONGPASS invalid username-password pair or user is disabled.")
		return false
	}
	c.server.guesses.right(host)
	c.known = true
	return true
}

// listener is where a client connected: the name of a socket ends in "~" until it
// is moved into place.
func listener(conn net.Conn) string { return strings.TrimSuffix(conn.LocalAddr().String(), "~") }

func doSelect(c *session, _ context.Context) {
	if n, ok := number(c.args[0]); !ok {
		c.fail(noInteger)
	} else if n != 0 {
		c.fail("ERR DB index is out of range")
	} else {
		c.out.simple("OK")
	}
}

func doClient(c *session, _ context.Context) {
	switch sub := strings.ToLower(string(c.args[0])); {
	case sub == "id":
		c.out.integer(c.id)
	case sub == "getname":
		c.getName()
	case sub == "setname" && len(c.args) == 2:
		if c.setName(c.args[1]) {
			c.out.simple("OK")
		}
	case sub == "setinfo" && len(c.args) == 3, sub == "no-evict" && len(c.args) == 2, sub == "no-touch" && len(c.args) == 2:
		c.out.simple("OK")
	default:
		c.fail("ERR unknown subcommand or wrong number of arguments for 'client'")
	}
}

// getName answers the name. A client without one has an empty one in RESP2, where
// Redis has none.
func (c *session) getName() {
	if c.name == "" && c.out.speaks == resp3 {
		c.out.null()
		return
	}
	c.out.text(c.name)
}

const nameTooLong = "ERR the name of a client has at most 1024 bytes" // maxShy

// setName answers only if it fails: a connection keeps its name.
func (c *session) setName(name []byte) bool {
	if len(name) > maxShy {
		c.fail(nameTooLong)
		return false
	}
	c.name = string(name)
	return true
}

// doCommand answers COMMAND COUNT with the number of commands, and the rest of
// COMMAND with nothing: clients ask for the table and do without it.
func doCommand(c *session, _ context.Context) {
	is := func(sub string) bool { return len(c.args) > 0 && strings.EqualFold(string(c.args[0]), sub) }
	switch {
	case is("count"):
		c.out.integer(int64(len(table)))
	case is("docs"):
		c.out.pairs(0)
	default:
		c.out.array(0)
	}
}

// clientSocket reads from a connection, polling for a while before it sleeps, if it is one of
// the system's. It belongs to one goroutine.
type clientSocket struct {
	conn net.Conn
	raw  syscall.RawConn // nil: no socket
	wait socket.Poll
	rest func()      // called before it waits, outside of the raw connection: it may wait itself
	due  func() bool // whether rest has anything to do

	p   []byte // what is being read into
	n   int
	err error

	rested bool // try may wait now
}

func newSocket(conn net.Conn, rest func(), due func() bool) *clientSocket {
	s := &clientSocket{conn: conn, rest: rest, due: due}
	if c, ok := conn.(syscall.Conn); ok {
		s.raw, _ = c.SyscallConn()
	}
	return s
}

// read returns bytes or an error.
func (s *clientSocket) read(p []byte) (int, error) {
	if s.raw == nil {
		s.rest()
		n, err := s.conn.Read(p)
		if n > 0 {
			err = nil // it comes again
		} else if err == nil {
			err = io.ErrNoProgress
		}
		return n, err
	}
	s.p, s.rested = p, !s.due()
	err := s.raw.Read(s.try)
	if err == nil && s.err == unix.EAGAIN {
		s.rest()
		s.rested = true
		err = s.raw.Read(s.try)
	}
	s.p = nil
	switch {
	case err != nil:
		s.wait.Over()
		return 0, err
	case s.err != nil:
		return 0, &net.OpError{Op: "read", Net: s.conn.LocalAddr().Network(), Addr: s.conn.RemoteAddr(), Err: s.err}
	case s.n == 0:
		return 0, io.EOF
	}
	return s.n, nil
}

// try is not done when there is nothing to read yet, once the socket has rested.
// It does not wait for anything but the socket: Close waits for its return.
func (s *clientSocket) try(fd uintptr) bool {
	for {
		s.n, s.err = unix.Read(int(fd), s.p)
		switch s.err {
		case unix.EINTR:
		case unix.EAGAIN:
			if !s.rested {
				return true
			}
			if !s.wait.Again() {
				return false
			}
		default:
			s.wait.Over()
			return true
		}
	}
}
