package resp_test

import (
	"context"
	"io"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/resp/blobtest"
	"github.com/kvstored/kvstored/internal/test/pipe"
)

// pipes is a server that is reached within the process, with the password "secret" for
// connections that look like TCP.
type pipes struct {
	t     *testing.T
	at    map[string]*pipe.Listener
	conns []*piped
}

// piped is a client's end of a connection.
type piped struct {
	*pipe.Conn
	t    *testing.T
	slow bool // it sends byte by byte
}

// inBubble runs a test with a server, in a bubble of time.
func inBubble(t *testing.T, test func(t *testing.T, p *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		store := blobtest.New(t, 16<<20)
		server := resp.New(resp.Options{
			Store: store.Store, NewOwner: store.Tiers.Leases.NewOwner, CloseOwner: store.Tiers.Leases.CloseOwner,
			Admit: admitAll, Enter: enterAll,
			Memory:   func() resp.Memory { return resp.Memory{} },
			Settings: resp.Settings{Password: "secret"},
		})
		p := &pipes{t: t, at: map[string]*pipe.Listener{"unix": pipe.Listen("s"), "tcp": pipe.ListenAt(overTCP)}}
		ctx, cancel := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		for _, l := range p.at {
			serving.Go(func() {
				if err := server.Serve(ctx, l); err != nil {
					t.Error(err)
				}
			})
		}
		test(t, p)
		for _, c := range p.conns {
			_ = c.Close() // never fails
		}
		cancel()
		serving.Wait()
	})
}

// dial connects; the server has numbered the connection when it returns.
func (p *pipes) dial(kind string) *piped {
	p.t.Helper()
	conn, err := p.at[kind].Dial(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	synctest.Wait()
	c := &piped{Conn: conn.(*pipe.Conn), t: p.t}
	p.conns = append(p.conns, c)
	return c
}

// send sends bytes, and returns when the server waits for more.
func (c *piped) send(b string) {
	c.t.Helper()
	step := len(b)
	if c.slow {
		step = 1
	}
	for ; len(b) > 0; b = b[step:] {
		if _, err := io.WriteString(c, b[:step]); err != nil {
			c.t.Fatal(err)
		}
	}
	synctest.Wait()
}

// expect reads exactly these bytes.
func (c *piped) expect(what string) {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience)) // never fails
	got := make([]byte, len(what))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != what {
		c.t.Fatalf("got %q, %v; want %q", got[:n], err, what)
	}
}

// do sends a command and reads exactly that reply.
func (c *piped) do(reply string, args ...string) {
	c.t.Helper()
	c.send(string(encode(args...)))
	c.expect(reply)
}

// silent fails the test if a reply is unread.
func (c *piped) silent() {
	c.t.Helper()
	synctest.Wait()
	if n, err := c.TryRead(make([]byte, 1)); n > 0 || err != syscall.EAGAIN && err != io.EOF {
		c.t.Errorf("%d bytes came that nothing has asked for, %v", n, err)
	}
}

// rest returns all replies that have come.
func (c *piped) rest() string {
	b := make([]byte, 1<<16)
	n, _ := c.TryRead(b) // nothing is ""
	return string(b[:n])
}
