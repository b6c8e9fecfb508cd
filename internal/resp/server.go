package resp

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/socket"
)

// Options of a Server.
type Options struct {
	Store *Store
	// NewOwner and CloseOwner register who answers for what a connection holds; the
	// daemon where there are too many.
	NewOwner   func() ledger.Owner
	CloseOwner func(ledger.Owner)

	// Admit tells who has connected, and is an error where that client may not.
	Admit func(net.Conn) (access.Peer, error)
	// Enter counts a client that is admitted, until leave is called; an error says that it has
	// too many connections.
	Enter   func(net.Conn) (leave func(), err error)
	Memory  func() Memory // for INFO
	Version string

	Settings // the first ones; see Server.Set

	Limits Limits
	Budget *budget.Budget // what the connections cost outside the arena; nil = no bound
	Log    zerolog.Logger
}

// Settings are the options that can change while a Server runs.
type Settings struct {
	Password string // asked for on TCP, of connections that come from now on; "" = none
	// Errors answers errors to every client, as Redis does. Otherwise GET, SET,
	// EXISTS and DEL answer none to a connection that has sent neither HELLO nor
	// CLIENT: a value that cannot be kept is dropped, and the old one with it.
	// A connection keeps the setting that it began with.
	Errors bool
}

// Limits bound what a client can cost. A zero field means the default.
type Limits struct {
	// StallTimeout is how long a client may make no progress in the middle of a
	// command, or in reading its replies: 30 s. Between commands it may rest.
	StallTimeout time.Duration
	// ArgBytes is how much one command may carry besides values: 8 MiB.
	ArgBytes int
}

const (
	// closeAfter is how long a stopping server waits for clients that do not
	// read their last replies.
	closeAfter = 2 * time.Second
	// sendBuffer is asked for on Unix sockets, and the kernel doubles it: each time
	// a buffer is full, two processes must be woken to go on. What a client leaves
	// there unread is memory of the daemon's control group. With 1 MiB gets of 1 and
	// 4 MiB take about 0.9 of the time, but TestMemoryInGroup's daemon runs out.
	sendBuffer = 256 << 10
	// quietBytes is what a connection costs that holds nothing: its buffers and
	// its goroutine.
	quietBytes = 64 << 10
	// refusedEvery is how often a refused login is logged at most, of all
	// clients together; all are counted.
	refusedEvery = time.Second
	// troubles are how many lines a minute the log gets of values that are not
	// stored, of all clients together; all are counted.
	troubles = 10
)

// Server serves connections. It is safe for concurrent use.
type Server struct {
	o       Options
	ids     atomic.Int64
	live    atomic.Int64
	conns   sync.Map // of each net.Conn that is served
	now     atomic.Pointer[Settings]
	count   counters
	guesses guesses
	logins  zerolog.Logger // of refused logins: whoever tries many does not fill the log
	trouble zerolog.Logger // of what may come in floods
}

// New makes a server; Serve starts it.
func New(o Options) *Server {
	o.Limits.StallTimeout = cmp.Or(o.Limits.StallTimeout, 30*time.Second)
	o.Limits.ArgBytes = cmp.Or(o.Limits.ArgBytes, 8<<20)
	s := &Server{
		o: o, guesses: newGuesses(), logins: o.Log.Sample(&zerolog.BurstSampler{Burst: 1, Period: refusedEvery}),
		trouble: o.Log.Sample(&zerolog.BurstSampler{Burst: troubles, Period: time.Minute}),
	}
	s.now.Store(&o.Settings)
	return s
}

// Set replaces the settings. It is safe for concurrent use.
func (s *Server) Set(to Settings) { s.now.Store(&to) }

// Recheck closes the connections that Options.Admit refuses by now.
func (s *Server) Recheck() {
	s.conns.Range(func(conn, _ any) bool {
		if _, err := s.o.Admit(conn.(net.Conn)); err != nil {
			_ = conn.(net.Conn).Close() // its session's read ends
		}
		return true
	})
}

// Serve accepts connections of l until ctx ends, then lets each finish the
// command it is at and closes it. It closes l. It may be called for several
// listeners at a time.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	return socket.Serve(ctx, l, s.o.Log, s.admit)
}

// admit says what becomes of a connection.
func (s *Server) admit(conn net.Conn) socket.Handler {
	if _, err := s.o.Admit(conn); err != nil {
		s.turnAway(conn, "NOPERM "+err.Error())
		return nil
	}
	leave, err := s.o.Enter(conn)
	if err != nil {
		s.turnAway(conn, "ERR max number of clients reached: "+err.Error())
		return nil
	}
	s.live.Add(1)
	return func(ctx context.Context, conn net.Conn) {
		defer leave()
		defer s.live.Add(-1)
		s.serveConn(ctx, conn)
	}
}

func (s *Server) serveConn(ctx context.Context, conn net.Conn) {
	s.conns.Store(conn, nil)
	defer s.conns.Delete(conn)
	peer, err := s.o.Admit(conn) // once more: who may connect can have changed since
	if err != nil {
		s.turnAway(conn, "NOPERM "+err.Error())
		return
	}
	s.count.connections.Add(1)
	if local, ok := conn.(interface{ SetWriteBuffer(int) error }); ok && conn.LocalAddr().Network() == "unix" { // TCP sizes its buffers itself
		_ = local.SetWriteBuffer(sendBuffer) // it gives less without harm
	}
	account, err := s.o.Budget.Open(conn, budget.RESP, quietBytes)
	if err != nil {
		s.turnAway(conn, "ERR "+err.Error())
		return
	}
	defer account.Close()
	owner := s.o.NewOwner()
	if owner == ledger.Daemon {
		s.turnAway(conn, "ERR max number of clients reached")
		return
	}
	c := newSession(ctx, s, conn, peer, account, owner)
	c.serve()
}

// turnAway tells a client why it is not served. It fits an empty socket; who does not
// take it finds the socket closed.
func (s *Server) turnAway(conn net.Conn, text string) {
	s.count.refused.Add(1)
	_, _ = conn.Write([]byte("-" + text + "\r\n"))
}

type counters struct {
	connections, refused, logins, commands, errors, malformed atomic.Uint64
	hits, misses, stored, hungUp, read, written               atomic.Uint64
	dropped                                                   drops
}

// Stats is a snapshot of a server's counters since the start.
type Stats struct {
	Connections      int64  `json:"connections"`
	ConnectionsTotal uint64 `json:"connections_total"`
	Refused          uint64 `json:"connections_refused"`
	LoginsRefused    uint64 `json:"logins_refused"` // for a wrong password or user
	Commands         uint64 `json:"commands"`
	Errors           uint64 `json:"errors"` // error replies
	Malformed        uint64 `json:"malformed"`
	Hits             uint64 `json:"hits"` // values read
	Misses           uint64 `json:"misses"`
	Stored           uint64 `json:"stored"`
	// Dropped counts values that were not kept, and whose clients were not told,
	// by reason.
	Dropped      map[string]uint64 `json:"dropped"`
	Owed         int64             `json:"owed"`       // old values still to be deleted below
	HungUp       uint64            `json:"hung_up"`    // connections closed where an error must not be answered
	BytesRead    uint64            `json:"bytes_read"` // from clients
	BytesWritten uint64            `json:"bytes_written"`
}

// Stats returns a snapshot.
func (s *Server) Stats() Stats {
	c := &s.count
	return Stats{
		Connections: s.live.Load(), ConnectionsTotal: c.connections.Load(), Refused: c.refused.Load(),
		LoginsRefused: c.logins.Load(), Commands: c.commands.Load(), Errors: c.errors.Load(), Malformed: c.malformed.Load(),
		Hits: c.hits.Load(), Misses: c.misses.Load(), Stored: c.stored.Load(),
		Dropped: c.dropped.Counts(), Owed: s.o.Store.Owed(), HungUp: c.hungUp.Load(),
		BytesRead: c.read.Load(), BytesWritten: c.written.Load(),
	}
}

// redisVersion is the version in INFO and HELLO, for clients that choose commands
// by it: the first that speaks RESP3, and the commands of that time.
const redisVersion = "6.0.0"

// Memory is what INFO says of the memory that values lie in.
type Memory struct {
	UsedBytes, CapacityBytes int64
	Policy                   string // of eviction
}

// doInfo answers INFO [section ...].
func doInfo(c *session, _ context.Context) {
	var asked []string
	for _, arg := range c.args {
		asked = append(asked, strings.ToLower(string(arg)))
	}
	all := len(asked) == 0 || slices.ContainsFunc(asked, func(s string) bool { return s == "default" || s == "all" || s == "everything" })
	var b strings.Builder
	for _, s := range c.server.sections() {
		if name, lines := s[0], s[1:]; all || slices.Contains(asked, strings.ToLower(name)) {
			fmt.Fprintf(&b, "# %s\r\n%s\r\n\r\n", name, strings.Join(lines, "\r\n"))
		}
	}
	c.out.verbatim(b.String())
}

// sections is what INFO knows: of each section the name, then its lines.
func (s *Server) sections() [][]string {
	st, mem := s.Stats(), s.o.Memory()
	line := func(name string, value any) string { return fmt.Sprint(name, ":", value) }
	return [][]string{
		{"Server", line("redis_version", redisVersion), line("redis_mode", "standalone"), line("kvstored_version", s.o.Version)},
		{"Clients", line("connected_clients", st.Connections)},
		{
			"Memory",
			line("used_memory", mem.UsedBytes), line("maxmemory", mem.CapacityBytes), line("maxmemory_policy", mem.Policy),
		},
		{"Persistence", line("loading", 0)},
		{
			"Stats",
			line("total_connections_received", st.ConnectionsTotal), line("total_commands_processed", st.Commands),
			line("total_net_input_bytes", st.BytesRead), line("total_net_output_bytes", st.BytesWritten),
			line("keyspace_hits", st.Hits), line("keyspace_misses", st.Misses),
		},
		{"Replication", line("role", "master")},
	}
}

// protocol is the version of RESP in which a connection is answered. A client
// chooses it with HELLO, and has RESP2 until then.
type protocol int8

const (
	resp2 protocol = 2
	resp3 protocol = 3
)

// null answers that there is no value.
func (o *output) null() {
	if o.speaks == resp3 {
		o.buf = append(o.buf, "_\r\n"...)
		return
	}
	o.buf = append(o.buf, "$-1\r\n"...)
}

// pairs begins n names, each with its value: a map, or an array of both.
func (o *output) pairs(n int) {
	if o.speaks == resp3 {
		o.header('%', int64(n))
		return
	}
	o.array(2 * n)
}

// verbatim answers text that is for people.
func (o *output) verbatim(s string) {
	if o.speaks == resp2 {
		o.text(s)
		return
	}
	const format = "txt:"
	o.header('=', int64(len(format)+len(s)))
	o.buf = append(append(append(o.buf, format...), s...), '\r', '\n')
	o.relieve()
}
