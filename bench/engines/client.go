package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/bench/measure"
)

// client speaks RESP as a good C client does: a value is written from where it
// lies, and read to where it goes.
type client struct {
	out  io.Writer
	in   *bufio.Reader
	head []byte
}

// dial connects as soon as the daemon listens.
func dial(socket string, loop bool) (*client, error) {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := connect(socket, loop)
		if err == nil {
			return &client{out: conn, in: bufio.NewReaderSize(conn, 4096)}, nil
		}
		if time.Now().After(end) {
			return nil, err
		}
	}
}

// connect returns a connection that Go's event loop waits for, or one that
// blocks its thread.
func connect(socket string, loop bool) (io.ReadWriter, error) {
	if loop {
		return net.Dial("unix", socket)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	unix.CloseOnExec(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("connect to %s: %w", socket, err)
	}
	return blocking(fd), nil
}

// blocking is a socket whose reads and writes block a thread. It is never closed.
type blocking int

func (fd blocking) Read(p []byte) (int, error) {
	n, err := unix.Read(int(fd), p)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(0, n), err
}

func (fd blocking) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var k int
		k, err = unix.Write(int(fd), p[n:])
		n += max(0, k)
	}
	return n, err
}

// send writes the head and what follows it, with one system call if it fits.
func (c *client) send(more ...[]byte) error {
	left := append(net.Buffers{c.head}, more...)
	if fd, ok := c.out.(blocking); ok {
		n, err := unix.Writev(int(fd), left)
		if err != nil {
			return err
		}
		for n > 0 {
			k := min(n, len(left[0]))
			if left[0] = left[0][k:]; len(left[0]) == 0 {
				left = left[1:]
			}
			n -= k
		}
	}
	_, err := left.WriteTo(c.out)
	return err
}

func (c *client) set(name string, value []byte) error {
	c.head = fmt.Appendf(c.head[:0], "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n", len(name), name, len(value))
	if err := c.send(value, []byte("\r\n")); err != nil {
		return err
	}
	return c.expect("+OK\r\n")
}

func (c *client) get(name string, into []byte) error {
	c.head = fmt.Appendf(c.head[:0], "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", len(name), name)
	if err := c.send(); err != nil {
		return err
	}
	if err := c.expect(fmt.Sprintf("$%d\r\n", len(into))); err != nil {
		return err
	}
	if _, err := io.ReadFull(c.in, into); err != nil {
		return err
	}
	return c.expect("\r\n")
}

func (c *client) expect(want string) error {
	got, err := c.in.ReadString('\n')
	if err == nil && got != want {
		err = fmt.Errorf("got %q, want %q", got, want)
	}
	return err
}

const ours = `
listen: {socket: %[1]s/k.sock, resp: [%[1]s/kvstored.sock]}
admin: {listen: ""}
cpu: {capacity: 1GiB}
disk: {capacity: 0}
log: {level: warn}
`

// start runs both servers, without a disk, and connects to them.
func start(dir, binary string, clients int, loop bool) (servers []*contender, stop func(), err error) {
	var running []*exec.Cmd
	stop = func() {
		for _, cmd := range running {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	if binary, err = measure.Program(context.Background(), binary, dir); err != nil {
		return nil, stop, err
	}
	file := filepath.Join(dir, "kvstored.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, ours, dir), 0o600); err != nil {
		return nil, stop, err
	}
	redis := filepath.Join(dir, "redis.sock")
	commands := []*exec.Cmd{
		exec.Command("redis-server", "--port", "0", "--unixsocket", redis, "--save", "", "--appendonly", "no", "--dir", dir),
		exec.Command(binary, "serve", "--config", file),
	}
	for i, socket := range []string{redis, filepath.Join(dir, "kvstored.sock")} {
		cmd := commands[i]
		if i == 1 {
			cmd.Stderr = os.Stderr
		}
		if err := cmd.Start(); err != nil {
			if errors.Is(err, exec.ErrNotFound) {
				err = fmt.Errorf("%w: install redis-server", err)
			}
			return nil, stop, err
		}
		running = append(running, cmd)
		server := &contender{name: filepath.Base(cmd.Path)}
		for range clients {
			c, err := dial(socket, loop)
			if err != nil {
				return nil, stop, err
			}
			server.clients = append(server.clients, c)
		}
		servers = append(servers, server)
	}
	for _, cmd := range running {
		settle(cmd.Process.Pid)
	}
	return servers, stop, nil
}

// settle waits until a process has nothing to do: the daemon puts its DRAM in huge
// pages when it starts, which takes some seconds of a processor.
func settle(pid int) {
	used := func() string {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if f := strings.Fields(string(b)); len(f) > 14 {
			return f[13] + " " + f[14] // ticks of 10 ms, of all its threads
		}
		return ""
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		before := used()
		if time.Sleep(300 * time.Millisecond); used() == before {
			return
		}
	}
}
