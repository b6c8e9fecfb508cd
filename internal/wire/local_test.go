package wire

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/test/pipe"
)

func localPair(t *testing.T) (a, b *Conn) {
	t.Helper()
	x, y := pipe.New()
	t.Cleanup(func() { x.Close(); y.Close() })
	ends := [2]*Conn{}
	for i, nc := range []*pipe.Conn{x, y} {
		c, err := NewConn(nc)
		if err != nil {
			t.Fatal(err)
		}
		c.SetMaxBody(MaxBodyBytes)
		ends[i] = c
	}
	return ends[0], ends[1]
}

// TestLocal: frames, files, stalls and ends come over a connection within the process as
// over a socket.
func TestLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := localPair(t)
		if _, _, err := b.TryReadFrame(); !errors.Is(err, ErrWouldBlock) {
			t.Error(err)
		}
		const n = 10_000
		var all []byte
		for i := range n {
			all = append(all, pingFrame(uint64(i))...)
		}
		go mustWrite(t, a, all)
		for i := range n {
			if h, body, err := b.ReadFrame(); err != nil || h.ID != uint64(i) || len(body) != 8 {
				t.Fatalf("frame %d: %+v, %d bytes, %v", i, h, len(body), err)
			}
		}
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte("arena"), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.WriteFiles(pingFrame(1), f, f); err != nil {
			t.Fatal(err)
		}
		f.Close()
		h, _, files, err := b.ReadFrameFiles()
		if err != nil || h.ID != 1 || len(files) != 2 {
			t.Fatalf("%+v, %d files, %v", h, len(files), err)
		}
		for _, f := range files {
			f.Close()
		}
		b.SetStall(time.Second)
		mustWrite(t, a, half(100))
		begun := time.Now()
		if _, _, err := b.ReadFrame(); !errors.Is(err, ErrStalled) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		a.Shut()
		if _, _, err := b.ReadFrame(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
	})
}

// TestLocalInterrupt: a read that waits ends.
func TestLocalInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b := localPair(t)
		time.AfterFunc(time.Hour, b.Interrupt)
		if _, _, err := b.ReadFrame(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
}
