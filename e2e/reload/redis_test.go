package reload

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// redis is a connection that speaks as much of RESP as tests need.
type redis struct {
	conn net.Conn
	r    *bufio.Reader
}

// newRedis connects to a front end; addr is the path of a socket or host:port.
func newRedis(t *testing.T, addr string) *redis {
	t.Helper()
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	conn, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &redis{conn, bufio.NewReader(conn)}
}

// do sends a command and returns its answer: text, or the bytes of a value, nil
// for none. An error reply is an error.
func (r *redis) do(args ...string) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	_ = r.conn.SetDeadline(time.Now().Add(30 * time.Second)) // fails only on a closed connection, as what follows
	if _, err := r.conn.Write(b.Bytes()); err != nil {
		return nil, err
	}
	line, err := r.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	switch line = strings.TrimSuffix(line, "\r\n"); line[0] {
	case '-':
		return nil, fmt.Errorf("the daemon answers %s", line)
	case '$':
		n, err := strconv.Atoi(line[1:])
		if err != nil || n < 0 {
			return nil, err
		}
		value := make([]byte, n+2)
		_, err = io.ReadFull(r.r, value)
		return value[:n], err
	}
	return []byte(line[1:]), nil
}

// setAndGet stores a value, and reads it and one that was stored before. A value
// may be gone, but never be another.
func (r *redis) setAndGet(i uint64) error {
	value := func(i uint64) string { return strings.Repeat(strconv.FormatUint(i, 10)+" ", 2000) }
	if _, err := r.do("SET", strconv.FormatUint(i, 10), value(i)); err != nil {
		return fmt.Errorf("SET: %w", err)
	}
	for _, i := range []uint64{i, i / 2} {
		got, err := r.do("GET", strconv.FormatUint(i, 10))
		if err != nil {
			return fmt.Errorf("GET: %w", err)
		}
		if got != nil && string(got) != value(i) {
			return fmt.Errorf("%d bytes came back of %d, or others", len(got), len(value(i)))
		}
	}
	return nil
}
