package zmtp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
)

// frame is one message of a frame that says how long it is.
func frame(says uint64, body []byte) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{flagLong}, says), body...)
}

// A peer that says a length costs room for what it sends, and no more.
func TestClaimedLength(t *testing.T) {
	const most = 64 << 20
	for sent, room := range map[int]uint64{0: 64 << 10, 100_000: 1 << 20} {
		c := &conn{r: bufio.NewReader(bytes.NewReader(frame(most, make([]byte, sent)))), max: most}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := c.read()
		runtime.ReadMemStats(&after)
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes of %d: %v", sent, most, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > room {
			t.Errorf("%d bytes of %d took %d, at most %d are meant", sent, most, took, room)
		}
	}
	body := make([]byte, 1<<20+7)
	for i := range body {
		body[i] = byte(i * 7)
	}
	c := &conn{Conn: net.Conn(nil), r: bufio.NewReader(bytes.NewReader(frame(uint64(len(body)), body))), max: most}
	if frames, err := c.read(); err != nil || len(frames) != 1 || !bytes.Equal(frames[0], body) {
		t.Errorf("a long frame is read as %d frames, %v", len(frames), err)
	}
}

// Large messages of all connections take the room that there is, a message too many ends its
// connection, and one that does not come to its end gives its room back.
func TestRoomOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 1 << 20
		room := NewRoom(2 * byteCost * size)
		read := func(sent int) (c *conn, done chan error) {
			near, far := net.Pipe()
			t.Cleanup(func() { _ = far.Close() })
			c, done = &conn{Conn: near, r: bufio.NewReader(near), max: size, room: room}, make(chan error, 1)
			go func() {
				_, err := c.read()
				if err != nil {
					_ = near.Close()
				}
				done <- err
			}()
			if _, err := far.Write(frame(size, make([]byte, sent))); err != nil && sent == size {
				t.Error(err)
			}
			return c, done
		}
		whole, done := read(size)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		_, slow := read(size - 1)
		if _, done := read(size - 1); !errors.Is(<-done, ErrBusy) {
			t.Error("a third message has room")
		}
		if _, small := read(freeBytes / 2); len(small) > 0 {
			t.Error("a small one has none")
		}
		if err := <-slow; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a message that stops: %v", err)
		}
		whole.leave()
		if !room.TryAcquire(2 * byteCost * size) {
			t.Error("room is not given back")
		}
	})
}

// TestRoomOfASecondFrame: a message whose first frame takes no room counts whole once it
// grows, and has an end.
func TestRoomOfASecondFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const first, size = freeBytes, 1 << 20
		near, far := net.Pipe()
		defer far.Close()
		room := NewRoom(byteCost * (first + size))
		c, done := &conn{Conn: near, r: bufio.NewReader(near), max: first + size, room: room}, make(chan error, 1)
		go func() {
			_, err := c.read()
			done <- err
		}()
		begun := frame(first, make([]byte, first))
		begun[0] |= flagMore
		if _, err := far.Write(append(begun, frame(size, make([]byte, size-1))...)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if room.TryAcquire(1) {
			t.Error("the first frame is not counted")
		}
		if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a message that stops: %v", err)
		}
	})
}
