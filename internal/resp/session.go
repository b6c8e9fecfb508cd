package resp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/socket"
)

// keptArgs is for how many arguments a connection keeps room between commands.
const keptArgs = 1 << 10

// maxShy is the longest argument of a client that has not given its password, and
// the longest name of a client.
const maxShy = 1 << 10

// denied tells of a command and the right that it takes.
const denied = "NOPERM '%s' takes the %s right, which this client lacks; see access"

// session is one connection.
type session struct {
	server  *Server
	conn    net.Conn
	peer    access.Peer     // nil: may do everything
	socket  *socket.Reader  // nil: conn is no socket of the system
	ctx     context.Context // ends when the server stops or the client has left
	work    context.Context // of the commands: ends closeAfter later
	owner   ledger.Owner
	in      *reader
	out     *output
	id      int64
	name    string
	known   bool // has given the password, or need not
	parses  bool // can take an error for an answer to anything
	mute    bool // and the command at hand must not answer one
	quit    bool
	inside  bool      // in the middle of a command
	until   time.Time // the read deadline
	closing atomic.Bool

	account *budget.Account
	held    budget.Held // for the command at hand

	// The arguments of the command at hand.
	args  [][]byte // without the command's name; empty where a value was
	text  []byte   // what args lie in
	ends  []int    // of each argument in text
	fills []fill   // the values

	tx *transaction // after MULTI
}

func newSession(ctx context.Context, s *Server, conn net.Conn, peer access.Peer, account *budget.Account, owner ledger.Owner) *session {
	c := &session{server: s, conn: conn, peer: peer, account: account, ctx: ctx, id: s.ids.Add(1), owner: owner}
	c.held.Account = account
	local := conn.LocalAddr().Network() == "unix"
	c.known = local || s.now.Load().Password == ""
	c.parses = s.now.Load().Errors
	c.in = newReader(c)
	c.out = newOutput(conn, account, s.o.Limits.StallTimeout, func(n int64) { s.count.written.Add(uint64(n)) })
	if c.out.raw != nil {
		c.socket = socket.NewReader(c.out.raw)
	}
	return c
}

// Read reads from the client. In the middle of a command it must not take for
// ever; between commands the deadline is only put off. It is set for longer
// than promised and put off late, because setting it costs more than a read.
func (c *session) Read(p []byte) (int, error) {
	for {
		stall := c.server.o.Limits.StallTimeout
		if now := time.Now(); c.until.Sub(now) < stall {
			c.until = now.Add(stall + stall/2)
			if err := c.conn.SetReadDeadline(c.until); err != nil {
				return 0, err
			}
		}
		if c.closing.Load() {
			return 0, net.ErrClosed
		}
		c.out.flush() // half a command may have come, and no more before its client reads
		n, err := c.read(p)
		c.server.count.read.Add(uint64(n))
		if n == 0 && c.inside && errors.Is(err, os.ErrDeadlineExceeded) && !c.closing.Load() {
			c.account.Closed(budget.Stalled)
		}
		if n > 0 || c.inside || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}

// read returns bytes or an error.
func (c *session) read(p []byte) (n int, err error) {
	if c.socket != nil {
		return c.socket.Receive(p, true)
	}
	if n, err = c.conn.Read(p); n > 0 {
		err = nil // it comes again
	} else if err == nil {
		err = io.ErrNoProgress
	}
	return n, err
}

// serve executes commands until the client goes, or the server stops.
func (c *session) serve() {
	work, cut := context.WithCancel(context.WithoutCancel(c.ctx))
	defer cut()
	c.work = work
	defer context.AfterFunc(c.ctx, func() {
		c.closing.Store(true)
		_ = c.conn.SetReadDeadline(time.Now())
		_ = time.AfterFunc(closeAfter, func() {
			cut()
			_ = c.conn.Close()
		})
	})()
	err := c.commands()
	var bad protocolError
	if errors.As(err, &bad) {
		c.server.count.malformed.Add(1)
		if bad == notHTTP {
			c.server.logins.Warn().Stringer("client", c.conn.RemoteAddr()).Str("listener", listener(c.conn)).
				Msg("a client of HTTP was cut off that spoke to the Redis front end: a web page may try to write here")
		}
		c.fail("ERR %s", bad.Error())
	}
	c.breakTransaction()
	c.out.flush()
	c.out.drain()
	c.server.o.CloseOwner(c.owner)
}

func (c *session) commands() error {
	for !c.quit && !c.closing.Load() {
		if c.out.relieve(); c.in.Buffered() == 0 {
			c.out.flush()
		}
		if err := c.out.failed(); err != nil {
			return err
		}
		if c.in.Buffered() == 0 {
			c.inside = c.tx != nil
			if _, err := c.in.Peek(1); err != nil {
				return err
			}
		}
		c.inside, c.mute = true, false
		n, err := c.in.command()
		if err == nil && n != 0 {
			err = c.command(n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// command reads the rest of a command of n arguments, its name included, and
// executes it. An error ends the connection.
func (c *session) command(n int) error {
	defer c.reset()
	if n == typedPing {
		return c.named("ping", 0)
	}
	if !c.known && n > 10 {
		return protocolError("unauthenticated multibulk length")
	}
	name, err := c.commandName()
	if err != nil {
		return err
	}
	return c.named(name, n-1)
}

// named is command once the name is known; n arguments follow.
func (c *session) named(name string, n int) error {
	cmd := table[name]
	if cmd == nil {
		return c.refuse(n, "ERR unknown command '%.64s'", name)
	}
	c.parses = c.parses || cmd.traits.has(parses)
	c.mute = cmd.traits.has(exact) && !c.parses
	switch {
	case !cmd.takes(n):
		return c.refuse(n, "ERR wrong number of arguments for '%s' command", name)
	case !c.known && !cmd.traits.has(open):
		c.mute, c.quit = false, c.mute // whatever it makes of that, nothing comes behind it
		return c.refuse(n, "NOAUTH Authentication required.")
	case !c.may(cmd.need):
		return c.refuse(n, denied, name, cmd.need)
	}
	for range n {
		if err := c.argument(cmd.traits); err != nil {
			return err
		}
	}
	for i := range c.ends {
		c.args = append(c.args, c.arg(i))
	}
	c.server.count.commands.Add(1)
	if c.tx != nil && !cmd.traits.has(immediate) {
		c.enqueue(name, cmd)
	} else {
		cmd.run(c, c.work)
	}
	return nil
}

// arg is argument i of those that were read, good until the next one is; empty if it
// is a value.
func (c *session) arg(i int) []byte {
	from := 0
	if i > 0 {
		from = c.ends[i-1]
	}
	return c.text[from:c.ends[i]:c.ends[i]]
}

// may reports whether the client has rights.
func (c *session) may(need access.Rights) bool {
	return need == 0 || c.peer == nil || c.peer.Rights()&need == need
}

// cutShort reports whether a command of many names must end here, because the
// server stops or its client has left; then it is the last of the connection.
func (c *session) cutShort() bool {
	if !c.closing.Load() {
		return false
	}
	if c.quit = true; !c.mute {
		c.out.error("ERR the daemon stops; only a part of the command was done")
	}
	return true
}

// commandName reads the name of a command, in lower case.
func (c *session) commandName() (string, error) {
	n, err := c.in.bulk()
	if err != nil {
		return "", err
	}
	if n > maxShy {
		return "", protocolError("the name of a command is too long")
	}
	c.text, err = c.in.append(c.text, n)
	name := strings.Map(printable, strings.ToLower(string(c.text)))
	c.text = c.text[:0]
	return name, err
}

// printable keeps what a client sent from breaking an error reply.
func printable(r rune) rune {
	if r < ' ' || r == utf8.RuneError {
		return '?'
	}
	return r
}

// refuse answers an error and passes over the n arguments left.
func (c *session) refuse(n int, format string, args ...any) error {
	c.fail(format, args...)
	c.breakTransaction()
	for range n {
		size, err := c.size()
		if err != nil {
			return err
		}
		if err := c.in.discard(size); err != nil {
			return err
		}
	}
	return nil
}

// size reads how long the next argument is.
func (c *session) size() (int, error) {
	n, err := c.in.bulk()
	if err == nil && !c.known && n > maxShy {
		err = protocolError("unauthenticated bulk length")
	}
	return n, err
}

// argument reads one argument, a value into the arena. The name of a value is
// the argument before it, of SETEX the first one.
func (c *session) argument(of traits) error {
	n, err := c.size()
	if err != nil {
		return err
	}
	i := len(c.ends)
	value := of.value(i)
	if err := c.charge(n, value); err != nil {
		return err
	}
	switch {
	case value && of.has(third):
		err = c.fill(c.arg(0), n)
	case value:
		err = c.fill(c.arg(i-1), n)
	case len(c.text)+n > c.server.o.Limits.ArgBytes:
		return protocolError("the arguments of a command are too long together")
	default:
		c.text, err = c.in.append(c.text, n)
	}
	c.ends = append(c.ends, len(c.text))
	return err
}

// charge charges one more argument of n bytes. A quiet connection has room for as
// much as reset keeps.
func (c *session) charge(n int, value bool) error {
	if value {
		n = 0 // it lies in the arena
	}
	const each = int(unsafe.Sizeof([]byte{}) + unsafe.Sizeof(0) + unsafe.Sizeof(fill{}))
	total := len(c.text) + n + each*(len(c.ends)+1)
	const step = quietBytes / 4
	if total <= step {
		return nil
	}
	return c.held.Set(int64((2*total + step - 1) / step * step)) // room grows by doubling; not each argument changes it
}

// reset ends a command: what of it was not stored is given up, and room beyond that
// which a quiet connection has.
func (c *session) reset() {
	abort(c.fills)
	clear(c.fills)
	clear(c.args) // they lie in text
	c.args, c.text, c.ends, c.fills = c.args[:0], c.text[:0], c.ends[:0], c.fills[:0]
	if max(cap(c.args), cap(c.ends), cap(c.fills)) > keptArgs || cap(c.text) > inputBytes {
		c.args, c.text, c.ends, c.fills = nil, nil, nil, nil
	}
	_ = c.held.Set(0) // releases
}

// fail answers an error, or ends the connection where the command must not.
func (c *session) fail(format string, args ...any) {
	c.server.count.errors.Add(1)
	text := fmt.Sprintf(format, args...)
	if !c.mute {
		c.out.error(text)
		return
	}
	c.quit = true
	c.server.count.hungUp.Add(1)
	c.server.trouble.Warn().Str("answer", text).Str("listener", listener(c.conn)).
		Msg("a Redis client is disconnected instead of being told an error: it has sent neither HELLO nor CLIENT, and might not understand")
}

// greeting is the request of a HELLO. Nil fields change nothing.
type greeting struct {
	speaks         protocol // 0: as before
	user, password []byte
	name           []byte
}

// doHello answers HELLO [2|3 [AUTH user password] [SETNAME name]]. A HELLO that fails
// has changed nothing.
func doHello(c *session, _ context.Context) {
	g, wrong := readGreeting(c.args)
	switch {
	case wrong != "":
		c.fail("%s", wrong)
		return
	case g.user != nil && !c.login(string(g.user), g.password):
		return
	case !c.known:
		c.fail("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	if g.name != nil {
		c.name = string(g.name)
	}
	if g.speaks != 0 {
		c.out.speaks = g.speaks
	}
	c.greet()
}

// greet answers HELLO.
func (c *session) greet() {
	c.out.pairs(7)
	c.out.text("server")
	c.out.text("redis")
	c.out.text("version")
	c.out.text(redisVersion)
	c.out.text("proto")
	c.out.integer(int64(c.out.speaks))
	c.out.text("id")
	c.out.integer(c.id)
	c.out.text("mode")
	c.out.text("standalone")
	c.out.text("role")
	c.out.text("master")
	c.out.text("modules")
	c.out.array(0)
}

// readGreeting reads the arguments of HELLO. Wrong ones have an error reply.
func readGreeting(args [][]byte) (g greeting, wrong string) {
	if len(args) == 0 {
		return g, ""
	}
	if g.speaks, wrong = readProtocol(string(args[0])); wrong != "" {
		return g, wrong
	}
	for rest := args[1:]; len(rest) > 0; {
		switch option := strings.ToLower(string(rest[0])); {
		case option == "auth" && len(rest) >= 3:
			g.user, g.password = rest[1], rest[2]
			rest = rest[3:]
		case option == "setname" && len(rest) >= 2:
			if g.name = rest[1]; len(g.name) > maxShy {
				return g, nameTooLong
			}
			rest = rest[2:]
		default:
			return g, fmt.Sprintf("ERR Syntax error in HELLO option '%.64s'", strings.Map(printable, string(rest[0])))
		}
	}
	return g, ""
}

// readProtocol reads a number as Redis does: in one spelling only.
func readProtocol(arg string) (p protocol, wrong string) {
	n, err := strconv.ParseInt(arg, 10, 64)
	switch {
	case err != nil || strconv.FormatInt(n, 10) != arg:
		return 0, "ERR Protocol version is not an integer or out of range"
	case n != int64(resp2) && n != int64(resp3):
		return 0, "NOPROTO unsupported protocol version"
	}
	return protocol(n), ""
}

// command is one row of the table.
type command struct {
	least, most int           // arguments besides the name; most < 0: any number
	need        access.Rights // of the client, to the values of this front end
	traits      traits
	run         func(c *session, ctx context.Context)
}

// takes reports whether the command takes n arguments.
func (c *command) takes(n int) bool { return n >= c.least && (c.most < 0 || n <= c.most) }

// traits set a command apart from others.
type traits uint8

const (
	// open: it needs no password.
	open traits = 1 << iota
	// parses: its clients can take an error for an answer to anything.
	parses
	// exact: some clients, such as LMCache's multi-process one, read its reply as a fixed
	// number of bytes without a look at them. An error would leave its rest in the stream,
	// and each later reply would be taken for that of the next command.
	exact
	// immediate: a transaction does not queue it.
	immediate
	// second, third and odd: which of its arguments are values.
	second
	third
	odd
)

func (t traits) has(of traits) bool { return t&of != 0 }

// value reports whether argument i is a value.
func (t traits) value(i int) bool {
	return t.has(second) && i == 1 || t.has(third) && i == 2 || t.has(odd) && i%2 == 1
}

// table is every command, by its name in lower case. It is filled in once,
// because COMMAND COUNT looks at it.
var table map[string]*command

func init() {
	table = map[string]*command{
		"ping":    {0, 1, 0, 0, doPing},
		"hello":   {0, -1, 0, open | parses, doHello},
		"auth":    {1, 2, 0, open, doAuth},
		"select":  {1, 1, 0, 0, doSelect},
		"client":  {1, -1, 0, parses, doClient},
		"info":    {0, -1, access.Read, 0, doInfo},
		"command": {0, -1, 0, 0, doCommand},
		"quit":    {0, -1, 0, open | immediate, doQuit},
		"multi":   {0, 0, 0, immediate, doMulti},
		"exec":    {0, 0, 0, immediate, doExec},
		"get":     {1, 1, access.Read, exact, doGet},
		"mget":    {1, -1, access.Read, 0, doMget},
		"strlen":  {1, 1, access.Read, 0, doStrlen},
		"exists":  {1, -1, access.Read, exact, doExists},
		"ttl":     {1, 1, access.Read, 0, doTTL},
		"set":     {2, -1, access.Write, exact | second, doSet},
		"setex":   {3, 3, access.Write, third, doSetex},
		"mset":    {2, -1, access.Write, odd, doMset},
		"del":     {1, -1, access.Write, exact, doDel},
	}
}
