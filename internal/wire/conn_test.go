package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// connPair returns the two ends of a Unix stream socket.
func connPair(t testing.TB) (*Conn, *Conn) {
	t.Helper()
	a, b := unixPair(t)
	return newConn(t, a), newConn(t, b)
}

func unixPair(t testing.TB) (*net.UnixConn, *net.UnixConn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "kvs") // t.TempDir can be too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	addr := &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"}
	l, err := net.ListenUnix("unix", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.DialUnix("unix", nil, addr)
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func newConn(t testing.TB, uc *net.UnixConn) *Conn {
	t.Helper()
	c, err := NewConn(uc)
	if err != nil {
		t.Fatal(err)
	}
	c.SetMaxBody(MaxBodyBytes)
	return c
}

func pingFrame(id uint64) []byte { return AppendRequest(nil, OpPing, id, &EmptyRequest{}) }

// mustWrite may run beside the test, so it does not end it.
func mustWrite(t testing.TB, c *Conn, p []byte) {
	t.Helper()
	if _, err := c.Write(p); err != nil {
		t.Error(err)
	}
}

func TestPipelinedFrames(t *testing.T) {
	a, b := connPair(t)
	var all []byte
	const n = 10_000 // more than the buffer holds, and frames across its end
	for i := range n {
		all = append(all, pingFrame(uint64(i))...)
	}
	go mustWrite(t, a, all)
	for i := range n {
		h, body, err := b.ReadFrame()
		if err != nil || h.ID != uint64(i) || h.Op != OpPing || len(body) != 8 {
			t.Fatalf("frame %d: %+v, %d bytes, %v", i, h, len(body), err)
		}
	}
	if b.Buffered() {
		t.Error("something is left")
	}
}

func TestFrameInPieces(t *testing.T) {
	a, b := connPair(t)
	frame := pingFrame(7)
	for i := range frame {
		if _, _, err := b.TryReadFrame(); !errors.Is(err, ErrWouldBlock) {
			t.Fatalf("before byte %d: %v", i, err)
		}
		mustWrite(t, a, frame[i:i+1])
	}
	if h, _, err := b.TryReadFrame(); err != nil || h.ID != 7 {
		t.Fatalf("%+v, %v", h, err)
	}
}

// TestReceiveBuffer: a peer that sends little costs little, and one that sends much at a
// time is read in large pieces.
func TestReceiveBuffer(t *testing.T) {
	a, b := connPair(t)
	for id := range uint64(3) {
		mustWrite(t, a, pingFrame(id))
		if h, _, err := b.ReadFrame(); err != nil || h.ID != id {
			t.Fatalf("%+v, %v", h, err)
		}
	}
	if len(b.buf) != firstBytes {
		t.Errorf("a buffer of %d bytes for pings, want %d", len(b.buf), firstBytes)
	}
	const frames = 1000
	mustWrite(t, a, bytes.Repeat(pingFrame(4), frames))
	for range frames {
		if _, _, err := b.ReadFrame(); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.buf) != readBytes {
		t.Errorf("a buffer of %d bytes for a pipeline, want %d", len(b.buf), readBytes)
	}
}

// TestClaimedBodyCostsNothing: a header that claims the largest body does not
// make the receiver hold more than about twice the bytes sent of it.
func TestClaimedBodyCostsNothing(t *testing.T) {
	a, b := connPair(t)
	mustWrite(t, a, Header{BodyBytes: MaxBodyBytes, Op: OpPut}.Append(nil))
	if _, _, err := b.TryReadFrame(); !errors.Is(err, ErrWouldBlock) {
		t.Fatal(err)
	}
	if len(b.buf) > firstBytes {
		t.Errorf("buffer of %d bytes for a header", len(b.buf))
	}
	const sent = 1 << 20
	go mustWrite(t, a, make([]byte, sent))
	b.SetReadDeadline(time.Now().Add(time.Minute))
	for b.tail < sent+HeaderBytes {
		if err := b.makeRoom(DecodeHeader(b.buf)); err != nil {
			t.Fatal(err)
		}
		n, err := b.link.Receive(b.buf[b.tail:], true)
		if err != nil {
			t.Fatal(err)
		}
		b.tail += n
	}
	if len(b.buf) > 2*(sent+HeaderBytes) {
		t.Errorf("buffer of %d bytes for %d", len(b.buf), sent)
	}
}

func TestLargeFrameBetweenSmallOnes(t *testing.T) {
	a, b := connPair(t)
	payload := make([]byte, 5<<20)
	for i := range payload {
		payload[i] = byte(i * 7 >> 3)
	}
	all := pingFrame(1)
	start := len(all)
	all = append(Begin(all, Header{Kind: KindReply, Op: OpGet, ID: 2}), payload...)
	End(all, start)
	all = append(all, pingFrame(3)...)
	go mustWrite(t, a, all)
	for id := uint64(1); id <= 3; id++ {
		h, body, err := b.ReadFrame()
		if err != nil || h.ID != id {
			t.Fatalf("%+v, %v", h, err)
		}
		if id == 2 && !bytes.Equal(body, payload) {
			t.Error("payload differs")
		}
	}
	if _, _, err := b.TryReadFrame(); !errors.Is(err, ErrWouldBlock) {
		t.Fatal(err)
	}
	if len(b.buf) > keepBytes {
		t.Errorf("%d bytes kept", len(b.buf))
	}
}

func TestEndOfStream(t *testing.T) {
	tests := []struct {
		name string
		sent []byte
		want error
	}{
		{"between frames", nil, io.EOF},
		{"in a header", pingFrame(1)[:5], io.ErrUnexpectedEOF},
		{"in a body", pingFrame(1)[:17], io.ErrUnexpectedEOF},
		{"too large", Header{BodyBytes: 1<<32 - 1}.Append(nil), ErrFrameTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := connPair(t)
			mustWrite(t, a, tt.sent)
			a.Close()
			if _, _, err := b.ReadFrame(); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestDeadlineWithinAFrame(t *testing.T) {
	a, b := connPair(t)
	frame := pingFrame(9)
	mustWrite(t, a, frame[:7])
	b.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
	if _, _, err := b.ReadFrame(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	b.SetReadDeadline(time.Time{})
	mustWrite(t, a, frame[7:])
	if h, _, err := b.ReadFrame(); err != nil || h.ID != 9 {
		t.Fatalf("%+v, %v", h, err)
	}
}

func TestTryWriteTakesWhatFits(t *testing.T) {
	a, b := connPair(t)
	big := make([]byte, 8<<20)
	n, err := a.TryWrite(big)
	if err != nil || n == 0 || n == len(big) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if m, err := a.TryWrite(big); err != nil || m != 0 {
		t.Fatalf("full socket took %d bytes, %v", m, err)
	}
	b.Close()
	if _, err := a.TryWrite(big); err == nil {
		t.Error("a closed peer took bytes")
	}
}

func TestDescriptors(t *testing.T) {
	a, b := connPair(t)
	names := []string{"arena", "staging"}
	var files []*os.File
	for _, name := range names {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(name); err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	frame := append(AppendReply(nil, OpHello, 1, &HelloReply{Descriptors: 2}), pingFrame(2)...)
	if err := a.WriteFiles(frame, files...); err != nil {
		t.Fatal(err)
	}
	h, _, got, err := b.ReadFrameFiles()
	if err != nil || h.Op != OpHello || len(got) != 2 {
		t.Fatalf("%+v, %d files, %v", h, len(got), err)
	}
	for i, f := range got {
		p := make([]byte, 16)
		n, err := f.ReadAt(p, 0)
		if err != io.EOF || string(p[:n]) != names[i] {
			t.Errorf("file %d says %q, %v", i, p[:n], err)
		}
		f.Close()
	}
	if h, _, err := b.ReadFrame(); err != nil || h.ID != 2 {
		t.Fatalf("%+v, %v", h, err)
	}
}

func TestTooManyDescriptors(t *testing.T) {
	a, b := connPair(t)
	f, err := os.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	many := make([]*os.File, 3*MaxFiles)
	for i := range many {
		many[i] = f
	}
	if err := a.WriteFiles(pingFrame(1), many...); err != nil {
		t.Fatal(err)
	}
	_, _, got, err := b.ReadFrameFiles()
	if !errors.Is(err, ErrMalformed) {
		t.Errorf("got %v", err)
	}
	for _, f := range got {
		f.Close()
	}
}

func TestRoundTripAllocatesNothing(t *testing.T) {
	a, b := connPair(t)
	frame := pingFrame(1)
	allocs := testing.AllocsPerRun(100, func() {
		mustWrite(t, a, frame)
		if _, _, err := b.ReadFrame(); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
