package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"

	"golang.org/x/sys/unix"
)

// socket is a connection whose reads and writes block a thread, as those of C
// clients do. Values are written from where they lie, and read to where they go.
type socket struct {
	fd  int
	in  *bufio.Reader
	out []byte
}

func dialSocket(path string) (*socket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	unix.CloseOnExec(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	s := &socket{fd: fd}
	s.in = bufio.NewReaderSize(s, 4096)
	return s, nil
}

// Read reads from the socket.
func (s *socket) Read(p []byte) (int, error) {
	n, err := unix.Read(s.fd, p)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(0, n), err
}

// send writes a command of several parts, with one system call if it fits.
func (s *socket) send(parts ...[]byte) error {
	left := net.Buffers(parts)
	for len(left) > 0 {
		n, err := unix.Writev(s.fd, left[:min(len(left), 1024)])
		if err != nil {
			return err
		}
		for len(left) > 0 && n >= len(left[0]) {
			n -= len(left[0])
			left = left[1:]
		}
		if n > 0 {
			left[0] = left[0][n:]
		}
	}
	return nil
}

// line reads one, without its end.
func (s *socket) line() (string, error) {
	got, err := s.in.ReadString('\n')
	return strings.TrimRight(got, "\r\n"), err
}

func (s *socket) expect(want string) error {
	got, err := s.line()
	if err == nil && !strings.HasPrefix(got, want) {
		err = fmt.Errorf("got %q, want %q", got, want)
	}
	return err
}

// value reads a value and the end of its line.
func (s *socket) value(into []byte) error {
	if _, err := io.ReadFull(s.in, into); err != nil {
		return err
	}
	_, err := s.line()
	return err
}
