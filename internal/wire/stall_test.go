package wire

import (
	"errors"
	"os"
	"testing"
	"time"
)

// half is the beginning of a put of 1 MiB.
func half(n int) []byte {
	return append(Header{BodyBytes: 1 << 20, Op: OpPut}.Append(nil), make([]byte, n-HeaderBytes)...)
}

func TestStalledFrame(t *testing.T) {
	a, b := connPair(t)
	b.SetStall(20 * time.Millisecond)
	mustWrite(t, a, pingFrame(1))
	mustWrite(t, a, half(100))
	if h, _, err := b.ReadFrame(); err != nil || h.ID != 1 {
		t.Fatal(h, err)
	}
	if _, _, err := b.ReadFrame(); !errors.Is(err, ErrStalled) {
		t.Errorf("half a frame and no more: %v", err)
	}
}

// strike makes the deadline strike that was set when received bytes of the frame
// were there.
func strike(c *Conn, received int64) {
	c.stall.armed, c.stall.frame, c.stall.mark = true, c.stall.frames, received
	_ = c.SetReadDeadline(time.Unix(1, 0))
}

// A frame that goes on is not cut off, however long it takes, nor is the rest
// between frames.
func TestProgressIsNoStall(t *testing.T) {
	a, b := connPair(t)
	b.SetStall(time.Hour)
	go func() {
		mustWrite(t, a, half(HeaderBytes+1<<20))
		mustWrite(t, a, pingFrame(2))
	}()
	for b.tail < 3*stallBytes { // bytes keep coming
		if err := b.receive(Header{BodyBytes: 1 << 20}, true, nil); err != nil {
			t.Fatal(err)
		}
	}
	for n := b.stall.received; n > 0; n -= stallBytes {
		strike(b, b.stall.received-stallBytes)
		if err := b.struck(os.ErrDeadlineExceeded); err != nil {
			t.Fatalf("%d bytes have come since: %v", stallBytes, err)
		}
	}
	strike(b, b.stall.received-stallBytes+1)
	if err := b.struck(os.ErrDeadlineExceeded); !errors.Is(err, ErrStalled) {
		t.Errorf("less has come: %v", err)
	}
	strike(b, 0)
	if _, body, err := b.ReadFrame(); err != nil || len(body) != 1<<20 {
		t.Fatal(len(body), err)
	}
	strike(b, b.stall.received) // set for the frame before, and now none has begun
	if h, _, err := b.ReadFrame(); err != nil || h.ID != 2 {
		t.Fatal(h, err)
	}
}

// Reads end at the deadline of a frame or at an interruption, the earlier one.
func TestInterrupt(t *testing.T) {
	a, b := connPair(t)
	b.SetStall(time.Hour)
	mustWrite(t, a, half(100))
	got := make(chan error)
	go func() {
		_, _, err := b.ReadFrame()
		got <- err
	}()
	b.Interrupt()
	if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
	b.stall.armed = false
	b.arm() // as if the interruption had come just before
	if _, _, err := b.ReadFrame(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// meter is a Meter with a limit.
type meter struct{ now, most, limit int64 }

func (m *meter) Charge(n int64) error {
	if m.now+n > m.limit {
		return errors.New("over")
	}
	m.now += n
	m.most = max(m.most, m.now)
	return nil
}

func (m *meter) Release(n int64) { m.now -= n }

// The receive buffer is charged before it grows, both while it is copied, and
// released when it shrinks.
func TestReceiveBufferIsCharged(t *testing.T) {
	for limit, want := range map[int64]error{4 << 20: nil, 1 << 20: errors.New("over")} {
		a, b := connPair(t)
		m := &meter{limit: limit}
		mustWrite(t, a, append(Header{BodyBytes: 100 << 10, Op: OpHello}.Append(nil), make([]byte, 100<<10)...))
		if _, _, err := b.ReadFrame(); err != nil {
			t.Fatal(err)
		}
		if err := b.SetMeter(m); err != nil {
			t.Fatal(err)
		}
		b.SetMaxBody(MaxBodyBytes)
		go func() {
			_, _ = a.Write(append(Header{BodyBytes: 2 << 20, Op: OpPut}.Append(nil), make([]byte, 2<<20)...))
			_, _ = a.Write(pingFrame(1))
		}()
		_, _, err := b.ReadFrame()
		if (err == nil) != (want == nil) {
			t.Fatalf("limit %d: %v", limit, err)
		}
		if m.now != beyond(len(b.buf)) {
			t.Errorf("limit %d: %d bytes are charged for a buffer of %d", limit, m.now, len(b.buf))
		}
		if err != nil {
			_ = b.Close()
			continue
		}
		if m.most < 2<<20+1<<20-2*readBytes {
			t.Errorf("at most %d bytes were charged; two buffers are there while one is copied", m.most)
		}
		if _, _, err := b.ReadFrame(); err != nil || m.now != 0 || len(b.buf) != readBytes {
			t.Errorf("%d bytes are charged for a buffer of %d (%v)", m.now, len(b.buf), err)
		}
	}
}
