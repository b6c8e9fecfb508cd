package client

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/test/pipe"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

var testSpace = key.Space{Model: "m", World: 1, DType: "u8", ChunkTokens: 4, Method: key.SHA256}

// fake is a daemon that follows a script: it answers exactly what the test
// says, in the order the test says.
type fake struct {
	t    testing.TB
	conn *wire.Conn
	nc   net.Conn
}

// request is a frame that the fake received.
type request struct {
	wire.Header
	body []byte
}

// setup says how the fake answers hello.
type setup struct {
	hello   wire.HelloReply
	files   []*os.File
	options Options
	raw     func(*fake, wire.Header) // answers hello instead, if set
}

func inlineSetup() setup {
	return setup{options: Options{Space: &testSpace}, hello: wire.HelloReply{
		Version: wire.Version, Rights: RightRead | RightWrite, Granted: wire.FeaturePushes,
		MaxRequest: wire.MaxBodyBytes, MaxReply: wire.MaxBodyBytes, MaxPayload: wire.MaxPayloadBytes,
		Limits: wire.Limits{LeaseMillis: 60_000}, HasSpace: true, Space: wire.SpaceInfo{Handle: 1, ChunkTokens: 4}, Server: "fake",
	}}
}

// dial connects a Client to a fake that runs script in a goroutine. Everything
// ends with the test.
func dial(t testing.TB, s setup, script func(*fake)) (*Client, error) {
	t.Helper()
	near, far := ends(t)
	s.options.Dialer = func(context.Context, string) (net.Conn, error) { return near, nil }
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer far.Close()
		conn, err := wire.NewConn(far)
		if err != nil {
			t.Error(err)
			return
		}
		f := &fake{t: t, conn: conn, nc: far}
		if f.greet(s) && script != nil {
			script(f)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := Dial(ctx, "fake", s.options)
	t.Cleanup(func() {
		if c != nil {
			c.Close()
		}
		<-ended
	})
	return c, err
}

// ends is a connection within the process, or a socket's where that is timed.
func ends(t testing.TB) (near, far net.Conn) {
	if _, ok := t.(*testing.B); !ok {
		return pipe.New()
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("unix", socket); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return near, far
}

func mustDial(t testing.TB, s setup, script func(*fake)) *Client {
	t.Helper()
	c, err := dial(t, s, script)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (f *fake) greet(s setup) bool {
	h, _, err := f.conn.ReadFrame()
	if err != nil || h.Op != wire.OpHello {
		f.t.Errorf("hello: %+v, %v", h, err)
		return false
	}
	f.conn.SetMaxBody(wire.MaxBodyBytes)
	if s.raw != nil {
		s.raw(f, h)
		return true
	}
	s.hello.Descriptors = uint32(len(s.files))
	if err := f.conn.WriteFiles(wire.AppendReply(nil, wire.OpHello, h.ID, &s.hello), s.files...); err != nil {
		f.t.Error(err)
	}
	return true
}

// next is the next request, or one of op 0 when the client has gone.
func (f *fake) next() request {
	h, body, err := f.conn.ReadFrame()
	if err != nil {
		return request{}
	}
	return request{h, append([]byte(nil), body...)}
}

// expect is next for a request that must be op; it decodes the body into m.
func (f *fake) expect(op wire.Op, m wire.Message) request {
	r := f.next()
	if r.Op != op {
		f.t.Errorf("the client sent %s, want %s", r.Op, op)
	} else if err := m.Decode(r.body); err != nil {
		f.t.Error(err)
	}
	return r
}

func (f *fake) write(p []byte) {
	f.conn.Write(p) // the client may have gone: its side says whether that is wrong
}

func (f *fake) reply(r request, m wire.Message) {
	f.write(wire.AppendReply(nil, r.Op, r.ID, m))
}

func (f *fake) refuse(r request, code Code, text string) {
	f.write(wire.AppendError(nil, r.Op, r.ID, code, wire.Refusal(code, text)))
}

func (f *fake) push(job uint64, m *wire.JobState) {
	f.write(wire.AppendPush(nil, wire.OpPrefetch, job, m))
}

// drain reads until the client has gone.
func (f *fake) drain() {
	for f.next().Op != 0 {
	}
}

// pong answers pings until the client has gone.
func (f *fake) pong() {
	for r := f.next(); r.Op != 0; r = f.next() {
		if r.Op == wire.OpPing {
			f.reply(r, wire.EmptyReply{})
		}
	}
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// refs describes chunks of 4 tokens.
func refs(rs ...wire.Ref) (out wire.Refs) {
	for _, r := range rs {
		r.Tokens = 4
		out = out.Add(r)
	}
	return out
}

func ready(n int) Count { return Count{Chunks: uint32(n), Tokens: uint64(4 * n)} }
