package zmtp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
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
