package resptest

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
)

// Exact behaves as LMCache's multi-process client does, byte by byte
// (csrc/storage_backends/redis/connector.cpp at 2827f8e, of 2026, read for its
// behaviour): five bytes after SET, four after EXISTS and DEL, and after GET a
// line of at most 32 bytes more than the header it expects, then as many bytes
// as it expects. It knows no errors: an unexpected reply is one of its own, and
// it goes on with the same connection at any place of the stream.
// Like there, a value that is read has the size that is asked for.
type Exact struct {
	conn net.Conn
	in   *bufio.Reader // only what was asked for is taken out of it
}

// NewExact makes a client of a connection.
func NewExact(conn net.Conn) *Exact { return &Exact{conn: conn, in: bufio.NewReader(conn)} }

// The errors of this client. Any other one is of the connection, which has ended.
var (
	// ErrMissing is GET's answer for a name without a value.
	ErrMissing = errors.New("key not found")
	// ErrAnswer says that the bytes that came are none that it knows: from here
	// on it may be out of step.
	ErrAnswer = errors.New("unexpected answer")
)

// send writes a command, a value last if there is one.
func (c *Exact) send(name, key string, value []byte) error {
	n := 2
	if value != nil {
		n = 3
	}
	head := fmt.Sprintf("*%d\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", n, len(name), name, len(key), key)
	parts := net.Buffers{[]byte(head)}
	if value != nil {
		parts = append(parts, fmt.Appendf(nil, "$%d\r\n", len(value)), value, []byte("\r\n"))
	}
	_, err := parts.WriteTo(c.conn)
	return err
}

// read takes exactly n bytes.
func (c *Exact) read(n int) (string, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(c.in, b)
	return string(b), err
}

// Set stores a value.
func (c *Exact) Set(key string, value []byte) error {
	if value == nil {
		value = []byte{}
	}
	if err := c.send("SET", key, value); err != nil {
		return err
	}
	switch answer, err := c.read(5); {
	case err != nil:
		return err
	case answer != "+OK\r\n":
		return fmt.Errorf("SET: %w: %q", ErrAnswer, answer)
	}
	return nil
}

// Get reads a value of len(into) bytes.
func (c *Exact) Get(key string, into []byte) error {
	if err := c.send("GET", key, nil); err != nil {
		return err
	}
	want := fmt.Sprintf("$%d\r\n", len(into))
	var head []byte
	for len(head) == 0 || head[len(head)-1] != '\n' {
		if len(head) > len(want)+32 {
			return fmt.Errorf("GET: %w: a line that begins with %q", ErrAnswer, head)
		}
		b, err := c.in.ReadByte()
		if err != nil {
			return err
		}
		head = append(head, b)
	}
	switch string(head) {
	case "$-1\r\n":
		return ErrMissing
	case want:
	default:
		return fmt.Errorf("GET: %w: %q", ErrAnswer, head)
	}
	if _, err := io.ReadFull(c.in, into); err != nil {
		return err
	}
	if end, err := c.read(2); err != nil || end != "\r\n" {
		return cmp.Or(err, fmt.Errorf("GET: %w: %q behind the value", ErrAnswer, end))
	}
	return nil
}

// Exists asks for a name.
func (c *Exact) Exists(key string) (bool, error) { return c.flag("EXISTS", key) }

// Del deletes a name and reports whether it had a value.
func (c *Exact) Del(key string) (bool, error) { return c.flag("DEL", key) }

func (c *Exact) flag(name, key string) (bool, error) {
	if err := c.send(name, key, nil); err != nil {
		return false, err
	}
	answer, err := c.read(4)
	if err == nil && answer != ":0\r\n" && answer != ":1\r\n" {
		err = fmt.Errorf("%s: %w: %q", name, ErrAnswer, answer)
	}
	return answer == ":1\r\n", err
}

// Auth gives a password; its answer is the one that is read as a line.
func (c *Exact) Auth(password string) error {
	if err := c.send("AUTH", password, nil); err != nil {
		return err
	}
	line, err := c.in.ReadString('\n')
	if err == nil && line != "+OK\r\n" {
		err = fmt.Errorf("AUTH: %w: %q", ErrAnswer, line)
	}
	return err
}

// Close ends the connection.
func (c *Exact) Close() error { return c.conn.Close() }
