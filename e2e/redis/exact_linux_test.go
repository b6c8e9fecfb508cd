package redis_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/internal/resp/resptest"
)

var exactCommands = flag.Int64("commands", 4_000, "how many commands TestExactClients sends at least; 100000 for a long run")

const (
	exactClients = 4
	exactNames   = 120 // of each client
	exactDRAM    = 64 << 20
	exactDisk    = 192 << 20 // less than all names have
)

// exactSize is how long all values of a name are: mostly some KiB, at most the
// 40 MiB for which there never is room.
func exactSize(rng *rand.Rand) int {
	switch p := rng.IntN(100); {
	case p < 70:
		return 16 + rng.IntN(64<<10)
	case p < 92:
		return 256<<10 + rng.IntN(1<<20)
	case p < 98:
		return 4<<20 + rng.IntN(10<<20)
	}
	return 40 << 20
}

// exactName is a name and what may be found under it.
type exactName struct {
	key   string
	size  int
	newer uint64   // the last version that was sent
	may   []uint64 // versions that a GET may give, or none
	back  uint64   // every version up to this one may too: a kill forgets owed deletions
}

// nothing reports whether the name has no value for certain.
func (n *exactName) nothing() bool { return len(n.may) == 0 && n.back == 0 }

// fill writes a version of the name's value, which no other name has.
func (n *exactName) fill(b []byte, version uint64) {
	head := binary.LittleEndian.AppendUint64(nil, version)
	head = append(append(head, n.key...), make([]byte, 64)...)[:64]
	at := copy(b, head)
	for at < len(b) {
		at += copy(b[at:], b[:at])
	}
}

// exactClient is one connection after another, with names of its own.
type exactClient struct {
	t      *testing.T
	rng    *rand.Rand
	socket string
	sent   *atomic.Int64
	down   *atomic.Bool // the daemon is killed, and connections may end
	names  []exactName
	conn   *resptest.Exact // nil: not connected
	value  []byte          // room for two values
	want   []byte
	hits   int
}

func newExactClient(t *testing.T, number uint64, socket string, sent *atomic.Int64, down *atomic.Bool) *exactClient {
	c := &exactClient{
		t: t, rng: rand.New(rand.NewPCG(number, 1)), socket: socket, sent: sent, down: down,
		value: make([]byte, 40<<20), want: make([]byte, 40<<20),
	}
	for i := range exactNames {
		c.names = append(c.names, exactName{key: fmt.Sprintf("model@%08x@0@%d", number, i), size: exactSize(c.rng)})
	}
	return c
}

// work sends commands until it is told to stop, or a reply is wrong.
func (c *exactClient) work(stop *atomic.Bool) {
	for !stop.Load() && !c.t.Failed() {
		if c.conn == nil {
			conn, err := net.Dial("unix", c.socket)
			if err != nil { // the daemon is being started
				time.Sleep(time.Millisecond)
				continue
			}
			c.conn = resptest.NewExact(conn)
			for i := range c.names { // the daemon was killed, but for the first time
				c.names[i].back = c.names[i].newer
			}
		}
		c.one(&c.names[c.rng.IntN(len(c.names))])
		c.sent.Add(1)
	}
}

// one sends one command and checks its answer.
func (c *exactClient) one(n *exactName) {
	switch p := c.rng.IntN(100); {
	case p < 45:
		c.set(n)
	case p < 80:
		c.get(n)
	case p < 90:
		there, err := c.conn.Exists(n.key)
		if c.answered("EXISTS", err) && there && n.nothing() {
			c.t.Errorf("EXISTS of %s, which has nothing", n.key)
		}
	default:
		had, err := c.conn.Del(n.key)
		if !c.answered("DEL", err) {
			return
		}
		if had && n.nothing() {
			c.t.Errorf("DEL of %s, which has nothing", n.key)
		}
		n.may, n.back = nil, 0
	}
}

func (c *exactClient) set(n *exactName) {
	n.newer++
	value := c.value[:n.size]
	n.fill(value, n.newer)
	if c.answered("SET", c.conn.Set(n.key, value)) {
		n.may, n.back = []uint64{n.newer}, 0
	} else {
		n.may = append(n.may, n.newer)
	}
}

func (c *exactClient) get(n *exactName) {
	value, want := c.value[:n.size], c.want[:n.size]
	err := c.conn.Get(n.key, value)
	if errors.Is(err, resptest.ErrMissing) || !c.answered("GET", err) {
		return
	}
	c.hits++
	version := binary.LittleEndian.Uint64(value)
	if !slices.Contains(n.may, version) && version > n.back {
		c.t.Errorf("GET of %s gives version %d; it may have %d, and %d is the last that was sent", n.key, version, n.may, n.newer)
	}
	if n.fill(want, version); !bytes.Equal(value, want) {
		c.t.Errorf("GET of %s gives other bytes than any version has", n.key)
	}
}

// answered reports whether there was an answer. Out of step it fails the test, and
// so does an end of the connection that no kill explains.
func (c *exactClient) answered(command string, err error) bool {
	if err == nil {
		return true
	}
	if !c.down.Load() || errors.Is(err, resptest.ErrAnswer) {
		c.t.Errorf("%s: %v", command, err)
	}
	_ = c.conn.Close()
	c.conn = nil
	return false
}

// databaseOf waits for the process that has the daemon's database: while the database is
// opened again there is none.
func databaseOf(t *testing.T, d *daemon.Daemon) int {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if pids := d.Children(); len(pids) > 0 {
			return pids[0]
		}
		if time.Now().After(end) {
			t.Fatal("the daemon has no process for its database")
		}
	}
}

// Clients that understand no errors, of a daemon that is full, whose disk fails,
// hangs, and comes back, and which is killed in the middle: after a SET that was
// answered there is its value or none, after a DEL none, and every client is in
// step throughout. The kill may bring older values back, until the next SET or DEL.
func TestExactClients(t *testing.T) {
	var socket string
	d := load.Folder(t, exactDRAM, exactDisk, func(c *config.Config) {
		socket = filepath.Join(filepath.Dir(c.Listen.Socket), "resp.sock")
		c.Listen.RESP = []string{socket}
	})
	d.Start()
	var sent atomic.Int64
	var stop, down atomic.Bool
	var clients []*exactClient
	var working sync.WaitGroup
	for i := range uint64(exactClients) {
		c := newExactClient(t, i, socket, &sent, &down)
		clients = append(clients, c)
		working.Go(func() { c.work(&stop) })
	}
	defer working.Wait()
	defer stop.Store(true)

	// until waits for an event while the clients go on.
	until := func(what string, is func(st *view) bool) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			var st view
			err := d.AskInto(t.Context(), &st)
			if err == nil && is(&st) {
				return
			}
			if t.Failed() || time.Now().After(deadline) {
				t.Fatalf("%s: never; %v\n%s", what, err, exactState(&st))
			}
		}
	}
	some := func() { // commands, of each phase
		t.Helper()
		for more := sent.Load() + *exactCommands/7; sent.Load() < more && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
	}
	owing := func(st *view) bool { return st.RESP.Owed > 0 }
	works := func(st *view) bool { return !st.Store.Tiers["disk"].Off && st.RESP.Owed == 0 }
	dropped := func(reason string) func(st *view) bool {
		return func(st *view) bool { return st.RESP.Dropped[reason] > 0 }
	}

	until("values on disk", func(st *view) bool { return st.Store.Tiers["disk"].Entries > 50 })
	some()
	until("a value there is no room for", dropped("no_room"))

	t.Log("the disk fails")
	d.LimitFiles(4 << 20) // less than a segment
	until("the disk is off", func(st *view) bool { return st.Store.Tiers["disk"].Off })
	until("an old value that stays on disk", owing)
	some()
	until("a value of such a name", dropped("owed"))
	d.LimitFiles(unix.RLIM_INFINITY)
	until("the disk works again", works)
	some()

	t.Log("the disk hangs")
	hang := func() (goOn func()) {
		t.Helper()
		pid := databaseOf(t, d)
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		return func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	}
	goOn := hang()
	defer func() { goOn() }()
	until("an old value that stays on disk", owing)
	some()
	goOn()
	until("the disk works again", works)
	some()

	t.Log("the daemon is killed while the disk hangs")
	goOn = hang()
	until("an old value that stays on disk", owing)
	some()
	down.Store(true)
	d.Kill()
	goOn()
	d.Start()
	until("clients are back", func(st *view) bool { return st.RESP.Connections == exactClients })
	down.Store(false)
	until("the disk works again", works)
	some()
	for sent.Load() < *exactCommands && !t.Failed() {
		time.Sleep(time.Millisecond)
	}
	stop.Store(true)
	working.Wait()

	hits := 0
	for _, c := range clients {
		for i := range c.names {
			if n := &c.names[i]; c.conn != nil {
				c.get(n)
			}
		}
		hits += c.hits
	}
	until("nothing is owed", works) // a slow disk is in trouble at any moment
	st := stats(t, d)
	// While the disk is in trouble nearly nothing hits, and the faster the clients are the more
	// they send meanwhile; so the hits are compared with what was to be sent, not with what was.
	if st.RESP.Errors+st.RESP.HungUp+st.RESP.Malformed > 0 || int64(hits) < *exactCommands/20 {
		t.Errorf("%d hits of %d commands", hits, sent.Load())
	}
	t.Logf("%d commands, %d hits; since the kill: %s", sent.Load(), hits, exactState(&st))
	for _, c := range clients {
		if c.conn != nil {
			_ = c.conn.Close()
		}
	}
}

func exactState(st *view) string {
	return fmt.Sprintf("%+v; disk: %+v", st.RESP, st.Store.Tiers["disk"])
}
