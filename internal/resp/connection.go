package resp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
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

const (
	inputBytes = 16 << 10  // buffered, and the longest line; longer arguments go past the buffer
	maxArgs    = 1 << 20   // of one command
	maxBulk    = 512 << 20 // as in Redis; what is not stored is read and dropped
)

// notRedis answers a line with a zero byte. A client of kvstored's own protocol
// sends one at once, and would wait for an answer while the reader waits for the
// end of the line.
const notRedis = "this is no Redis client; kvstored's own clients belong to listen.socket"

const (
	// notHTTP ends a connection of a browser or another client of HTTP. The author of a
	// page chooses the body of such a request, which could be commands.
	notHTTP = "this is no web server; nothing of the request counts"
	// notTyped ends a connection that sends a line in place of an array.
	notTyped = "a command is an array of bulk strings; of lines only PING is taken"
)

// protocolError is input after which the stream cannot be followed any more.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// reader takes a RESP stream apart, one header at a time. A length that a client
// announces costs nothing: memory is only used for bytes that have arrived.
type reader struct{ *bufio.Reader }

func newReader(src io.Reader) *reader { return &reader{bufio.NewReaderSize(src, inputBytes)} }

// line returns the bytes before the next line feed, without the carriage
// return before it. They are good until the next call.
func (r *reader) line() ([]byte, error) {
	for {
		l, _ := r.Peek(r.Buffered())
		i := bytes.IndexByte(l, '\n')
		if bytes.IndexByte(l[:cmp.Or(i+1, len(l))], 0) >= 0 {
			return nil, protocolError(notRedis)
		}
		if i >= 0 {
			_, _ = r.Discard(i + 1) // all of it is there
			return bytes.TrimSuffix(l[:i], []byte{'\r'}), nil
		}
		if len(l) == inputBytes {
			return nil, protocolError("too long a line")
		}
		if _, err := r.Peek(len(l) + 1); err != nil {
			return nil, unexpected(err, len(l) > 0)
		}
	}
}

// unexpected is err for an end in the middle of something.
func unexpected(err error, inside bool) error {
	if inside && errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// typedPing is a command of one word without a header, PING.
const typedPing = -1

// command reads the first line of a command: the number of its arguments,
// the name included. An empty one has none.
func (r *reader) command() (int, error) {
	l, err := r.line()
	if err != nil {
		return 0, err
	}
	if len(l) == 0 || l[0] != '*' {
		return typed(bytes.Fields(l))
	}
	n, ok := number(l[1:])
	if !ok || n > maxArgs {
		return 0, protocolError("invalid multibulk length")
	}
	return int(max(0, n)), nil
}

// typed is a line that is no header. Each request of HTTP has one before its body: its
// first, or its field Host.
func typed(words [][]byte) (int, error) {
	if len(words) == 0 {
		return 0, nil
	}
	first, last := words[0], words[len(words)-1]
	switch {
	case bytes.EqualFold(first, []byte("POST")), bytes.EqualFold(first, []byte("Host:")), bytes.HasPrefix(last, []byte("HTTP/")):
		return 0, protocolError(notHTTP)
	case len(words) > 1 || !bytes.EqualFold(first, []byte("PING")):
		return 0, protocolError(notTyped)
	}
	return typedPing, nil
}

// bulk reads the header of an argument: how long it is.
func (r *reader) bulk() (int, error) {
	l, err := r.line()
	if err != nil {
		return 0, unexpected(err, true)
	}
	if len(l) == 0 || l[0] != '$' {
		return 0, protocolError(fmt.Sprintf("expected '$', got '%.1s'", l))
	}
	n, ok := number(l[1:])
	if !ok || n < 0 || n > maxBulk {
		return 0, protocolError("invalid bulk length")
	}
	return int(n), nil
}

// full fills p, past the buffer where it is long, and calls arrived for each part.
func (r *reader) full(p []byte, arrived func(n int)) error {
	for len(p) > 0 {
		n, err := r.Read(p)
		if n == 0 {
			return unexpected(err, true)
		}
		arrived(n)
		p = p[n:]
	}
	return nil
}

// end reads what closes an argument.
func (r *reader) end() error {
	for _, want := range [2]byte{'\r', '\n'} {
		is, err := r.ReadByte()
		if err != nil {
			return unexpected(err, true)
		}
		if is != want {
			return protocolError("an argument is longer than its header says")
		}
	}
	return nil
}

// append reads an argument of n bytes behind dst.
func (r *reader) append(dst []byte, n int) ([]byte, error) {
	for n > 0 {
		part, err := r.Peek(min(n, max(1, r.Buffered())))
		if err != nil {
			return dst, unexpected(err, true)
		}
		dst = append(dst, part...)
		n -= len(part)
		_, _ = r.Discard(len(part)) // all of it is there
	}
	return dst, r.end()
}

// discard drops an argument of n bytes.
func (r *reader) discard(n int) error {
	if _, err := r.Discard(n); err != nil {
		return unexpected(err, true)
	}
	return r.end()
}

// number reads a decimal integer.
func number(b []byte) (n int64, ok bool) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil && b[0] != '+'
}
