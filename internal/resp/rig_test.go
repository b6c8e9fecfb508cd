package resp_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/resp/blobtest"
	"github.com/kvstored/kvstored/internal/test/pipe"
)

const patience = time.Minute // bounds what should take no time at all

// rig is a server on both kinds of listener, of this process or of the system.
type rig struct {
	t       testing.TB
	o       resp.Options
	store   *blobtest.Rig
	server  *resp.Server
	sockets bool
	unix    net.Addr
	tcp     net.Addr
	at      map[net.Addr]*pipe.Listener
	stop    func()
}

func newRig(t testing.TB, o resp.Options) *rig { return newRigOf(t, 64<<20, o) }

// newSocketRig is newRig with sockets, in real time.
func newSocketRig(t testing.TB, capacity int64, o resp.Options) *rig {
	t.Helper()
	o.Errors = true
	return makeRigOf(t, capacity, o, true)
}

// newRigOf makes a rig with so many bytes of DRAM, which answers errors to all.
func newRigOf(t testing.TB, capacity int64, o resp.Options) *rig {
	t.Helper()
	o.Errors = true
	return makeRig(t, capacity, o)
}

func makeRig(t testing.TB, capacity int64, o resp.Options) *rig {
	t.Helper()
	return makeRigOf(t, capacity, o, false)
}

func admitAll(net.Conn) (access.Peer, error) { return nil, nil }

func enterAll(net.Conn) (func(), error) { return func() {}, nil }

func makeRigOf(t testing.TB, capacity int64, o resp.Options, sockets bool) *rig {
	t.Helper()
	r := &rig{t: t, store: blobtest.New(t, capacity), sockets: sockets}
	o.Memory = func() resp.Memory { return resp.Memory{UsedBytes: 1536, CapacityBytes: capacity, Policy: "lru"} }
	if o.Admit == nil {
		o.Admit = admitAll
	}
	if o.Enter == nil {
		o.Enter = enterAll
	}
	r.o = o
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

// start serves what the store is now.
func (r *rig) start() {
	r.o.Store, r.o.NewOwner, r.o.CloseOwner = r.store.Store, r.store.Tiers.Leases.NewOwner, r.store.Tiers.Leases.CloseOwner
	r.server = resp.New(r.o)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	r.at = make(map[net.Addr]*pipe.Listener)
	serve := func(l net.Listener) net.Addr {
		serving.Go(func() {
			if err := r.server.Serve(ctx, l); err != nil {
				r.t.Error(err)
			}
		})
		return l.Addr()
	}
	if r.sockets {
		r.unix = serve(r.listen("unix", filepath.Join(r.t.TempDir(), "s")))
		r.tcp = serve(r.listen("tcp", "127.0.0.1:0"))
	} else {
		for l, at := range map[*pipe.Listener]*net.Addr{pipe.Listen("s"): &r.unix, pipe.ListenAt(overTCP): &r.tcp} {
			*at = serve(l)
			r.at[*at] = l
		}
	}
	r.stop = func() { cancel(); serving.Wait() }
}

// overTCP is the address of connections that look as those of TCP.
var overTCP = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6380}

func (r *rig) listen(network, address string) net.Listener {
	l, err := net.Listen(network, address)
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

// restart begins anew with the store begun anew.
func (r *rig) restart() {
	r.stop()
	r.store.Restart()
	for !r.store.Tiers.Recovery.Ready() {
		time.Sleep(time.Millisecond)
	}
	r.start()
}

// conn is a client that sees every byte.
type conn struct {
	net.Conn
	t    testing.TB
	in   *bufio.Reader
	slow bool // it sends byte by byte
}

func (r *rig) dial(addr net.Addr) *conn {
	r.t.Helper()
	var c net.Conn
	var err error
	if l := r.at[addr]; l != nil {
		c, err = l.Dial(r.t.Context())
	} else {
		c, err = net.Dial(addr.Network(), addr.String())
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	out := &conn{Conn: c, t: r.t, in: bufio.NewReader(c)}
	out.wait()
	return out
}

// wait starts the patience with the next reply anew.
func (c *conn) wait() { _ = c.SetDeadline(time.Now().Add(patience)) }

// encode is a command as clients send it.
func encode(args ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

func (c *conn) send(b []byte) {
	c.t.Helper()
	c.wait()
	step := len(b)
	if c.slow {
		step = 1
	}
	for piece := range slices.Chunk(b, max(1, step)) {
		if _, err := c.Write(piece); err != nil {
			c.t.Fatal(err)
		}
	}
}

// expect reads exactly that.
func (c *conn) expect(what string) {
	c.t.Helper()
	c.wait()
	got := make([]byte, len(what))
	n, err := io.ReadFull(c.in, got)
	if err != nil || !bytes.Equal(got, []byte(what)) {
		c.t.Fatalf("got %.200q, %v; want %.200q", got[:n], err, what)
	}
}

// do sends a command and reads exactly that reply.
func (c *conn) do(reply string, args ...string) {
	c.t.Helper()
	c.send(encode(args...))
	c.expect(reply)
}

// fails sends a command and wants an error that starts so.
func (c *conn) fails(prefix string, args ...string) {
	c.t.Helper()
	c.send(encode(args...))
	line, err := c.in.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "-"+prefix) {
		c.t.Fatalf("%v: got %q, %v; want an error %s", args, line, err, prefix)
	}
}

// closed wants the server to end the connection, after a protocol error if
// that is said.
func (c *conn) closed(says string) {
	c.t.Helper()
	rest, err := io.ReadAll(c.in)
	if err != nil && !strings.Contains(err.Error(), "reset") || !strings.Contains(string(rest), says) {
		c.t.Fatalf("got %.200q, %v; want %q and the end", rest, err, says)
	}
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
