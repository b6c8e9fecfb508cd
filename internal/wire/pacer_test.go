package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"
)

// turns is a Pacer that checks the order of its calls, and what the connection has
// received between them.
type turns struct {
	t      *testing.T
	conn   *Conn
	begun  int
	in     bool
	before int64
	left   func() // called by Leave
	failed error  // of Begin, from the second on
}

func (p *turns) Begin() error {
	if p.in {
		p.t.Error("a turn begins in a turn")
	}
	if p.begun > 0 && p.failed != nil {
		return p.failed
	}
	if n := p.conn.stall.received - p.before; n > pieceBytes {
		p.t.Errorf("%d bytes were read in a turn or beside one", n)
	}
	p.begun, p.in, p.before = p.begun+1, true, p.conn.stall.received
	return nil
}

func (p *turns) End() { p.in = false }

func (p *turns) Leave() {
	if p.in {
		p.t.Error("the connection waits in a turn")
	}
	if p.left != nil {
		p.left()
	}
}

// paced is two ends of which the second receives in turns.
func paced(t *testing.T, spin time.Duration) (*Conn, *Conn, *turns) {
	a, b := connPair(t, spin)
	b.SetMaxBody(MaxBodyBytes)
	p := &turns{t: t, conn: b}
	b.SetPacer(p)
	return a, b, p
}

// A large frame is read in turns of one piece each, small ones without.
func TestLargeFramesTakeTurns(t *testing.T) {
	for name, spin := range map[string]time.Duration{"sleeping": 0, "polling": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			a, b, p := paced(t, spin)
			body := bytes.Repeat([]byte("payload."), 1<<18)
			go func() {
				mustWrite(t, a, pingFrame(1))
				mustWrite(t, a, append(Header{BodyBytes: uint32(len(body)), Op: OpPut, ID: 2}.Append(nil), body...))
				mustWrite(t, a, pingFrame(3))
			}()
			if h, _, err := b.ReadFrame(); err != nil || h.ID != 1 || p.begun > 0 {
				t.Fatalf("a small frame: %+v, %v, after %d turns", h, err, p.begun)
			}
			h, got, err := b.ReadFrame()
			if err != nil || h.ID != 2 || !bytes.Equal(got, body) {
				t.Fatalf("the large frame: %+v of %d bytes, %v", h, len(got), err)
			}
			if n := p.begun; n < len(body)/pieceBytes-1 { // the first piece may come with the header
				t.Errorf("%d bytes took %d turns of %d", len(body), n, pieceBytes)
			}
			if h, _, err := b.ReadFrame(); err != nil || h.ID != 3 {
				t.Fatal(h, err)
			}
		})
	}
}

// What ends a read ends one in turns as well: the end of the stream, a stall, a turn that
// does not come. A read that must not sleep returns at once.
func TestTurnsEnd(t *testing.T) {
	a, b, _ := paced(t, 0)
	mustWrite(t, a, half(100))
	b.SetStall(20 * time.Millisecond)
	if _, _, err := b.TryReadFrame(); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("half a frame is tried: %v", err)
	}
	if _, _, err := b.ReadFrame(); !errors.Is(err, ErrStalled) {
		t.Errorf("half a frame and no more: %v", err)
	}
	a, b, p := paced(t, 0)
	p.left = func() { _ = a.Close() } // in the middle of the frame
	mustWrite(t, a, half(100))
	if _, _, err := b.ReadFrame(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a frame and the end: %v", err)
	}
	a, b, p = paced(t, 0)
	p.failed = errors.New("no turn")
	go a.Write(half(HeaderBytes + 1<<20)) //nolint:errcheck // it is cut off
	if _, _, err := b.ReadFrame(); err != p.failed {
		t.Errorf("no turn comes: %v", err)
	}
}
