package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/bench/measure"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/wire"
)

// The bare server is what any daemon takes that shares memory with its clients and
// keeps no books: over the same kind of socket, with the same polling, it answers
// requests of about the length of ours, copies values from a window with their
// checksum, or hashes them where they are. Its times are those of one client.

// bareOp is what the bare server does before it answers.
type bareOp byte

const (
	bareEcho bareOp = iota
	bareTake        // copies values out of the window, with their checksum
)

const (
	// bareBytes is the length of requests and replies but for a ping's: as long as
	// ours for one value.
	bareBytes = 128
	pingBytes = wire.HeaderBytes
)

// serveBare is the bare server. Its window is the file that it was started with.
func serveBare(path string, spin time.Duration) error {
	window, err := mapWindow(os.NewFile(3, "window"))
	if err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	c, err := l.AcceptUnix()
	if err != nil {
		return err
	}
	s, err := newSocket(c, spin)
	if err != nil {
		return err
	}
	own := make([]byte, workingSet)
	copy(own, window) // faults the pages in
	at := 0
	buf := make([]byte, bareBytes)
	for {
		p, err := s.message(buf)
		if err != nil {
			return nil // the client is done
		}
		if len(p) == bareBytes {
			at = bareWork(p, window, own, at)
		}
		if _, err := c.Write(p); err != nil {
			return nil
		}
	}
}

// bareWork does what request p asks for. It takes values into own from at on, and
// returns where the next ones go.
func bareWork(p, window, own []byte, at int) int {
	n, size, from := int(binary.LittleEndian.Uint32(p[4:])), int(binary.LittleEndian.Uint32(p[8:])), int(binary.LittleEndian.Uint64(p[16:]))
	sum := uint64(0)
	for i := range n {
		value := window[from+i*size:][:size]
		if bareOp(p[1]) != bareTake {
			continue
		}
		if at+size > len(own) {
			at = 0
		}
		sum += arena.CopySum(own[at:at+size], value)
		at += size
	}
	binary.LittleEndian.PutUint64(p[24:], sum)
	return at
}

// bareSocket is one end of a bare connection: read blocks, or polls first.
type bareSocket struct {
	c    *net.UnixConn
	raw  syscall.RawConn
	spin time.Duration
}

func newSocket(c *net.UnixConn, spin time.Duration) (*bareSocket, error) {
	raw, err := c.SyscallConn()
	return &bareSocket{c, raw, spin}, err
}

// message reads one message into p; the first byte is its length.
func (s *bareSocket) message(p []byte) ([]byte, error) {
	for have := 0; ; {
		n, err := s.read(p[have:])
		if err != nil {
			return nil, err
		}
		if have += n; have >= int(p[0]) {
			return p[:have], nil
		}
	}
}

func (s *bareSocket) read(p []byte) (n int, err error) {
	if s.spin == 0 {
		return s.c.Read(p)
	}
	rerr := s.raw.Read(func(fd uintptr) bool {
		for start := time.Now(); ; {
			n, err = syscall.Read(int(fd), p)
			if err != syscall.EAGAIN {
				return true
			}
			if time.Since(start) > s.spin {
				return false
			}
		}
	})
	if rerr != nil {
		return 0, rerr
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// bare is the client of a bare server, in a process of its own.
type bare struct {
	cmd    *exec.Cmd
	s      *bareSocket
	window []byte
	buf    [bareBytes]byte
}

func startBare(dir, name string, spin time.Duration) (*bare, error) {
	f, err := newMemory(workingSet)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	path := filepath.Join(dir, name)
	cmd := exec.Command(os.Args[0], "bare", path, spin.String())
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{f}
	b := &bare{cmd: cmd}
	if b.window, err = mapWindow(f); err != nil {
		return nil, err
	}
	clear(b.window) // faults the pages in
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	conn, err := dialWhenUp(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bare server: %w", err), cmd.Process.Kill(), cmd.Wait())
	}
	b.s, err = newSocket(conn, spin)
	return b, err
}

func mapWindow(f *os.File) ([]byte, error) {
	b, err := syscall.Mmap(int(f.Fd()), 0, workingSet, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the window: %w", err)
	}
	return b, nil
}

func dialWhenUp(path string) (*net.UnixConn, error) {
	deadline := time.Now().Add(30 * time.Second)
	for {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err == nil || time.Now().After(deadline) {
			return c, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// trip is one R.
func (b *bare) trip() error {
	p := b.buf[:pingBytes]
	p[0] = pingBytes
	if _, err := b.s.c.Write(p); err != nil {
		return err
	}
	_, err := b.s.message(b.buf[:])
	return err
}

// ask has the server do something with n values from a place of the window on.
func (b *bare) ask(op bareOp, from, n, size int) error {
	if err := b.send(op, from, n, size); err != nil {
		return err
	}
	_, err := b.s.message(b.buf[:])
	return err
}

func (b *bare) send(op bareOp, from, n, size int) error {
	p := b.buf[:]
	p[0], p[1] = bareBytes, byte(op)
	binary.LittleEndian.PutUint32(p[4:], uint32(n))
	binary.LittleEndian.PutUint32(p[8:], uint32(size))
	binary.LittleEndian.PutUint64(p[16:], uint64(from))
	_, err := b.s.c.Write(p)
	return err
}

// get is the time of one of so many values that are read together: a request, which
// also releases the value before, and copies out of shared memory. A request of
// their own releases many.
func (b *bare) get(x *buffers, size, together int, way measure.Copy) (time.Duration, error) {
	n := workingSet / size / together
	start := time.Now()
	for i := range n {
		if err := b.ask(bareEcho, 0, 0, size); err != nil {
			return 0, err
		}
		for k := range together {
			way(part(x.dst, i*together+k, size), part(b.window, i*together+k, size))
		}
		if together == 1 {
			continue
		}
		if err := b.ask(bareEcho, 0, 0, size); err != nil {
			return 0, err
		}
	}
	return time.Since(start) / time.Duration(n*together), nil
}

// put is the time of one of many values that are copied to the window and handed
// over so many together; with two in flight the client copies while the server
// works. They lie in the part that a window of slots would use.
func (b *bare) put(x *buffers, op bareOp, size, together, inFlight int, way measure.Copy) (time.Duration, error) {
	n := workingSet / size / together
	span := 2 * together * size
	under := 0
	start := time.Now()
	for i := range n {
		from := i * together * size % span
		for k := range together {
			way(b.window[from+k*size:][:size], part(x.src, i*together+k, size))
		}
		if err := b.send(op, from, together, size); err != nil {
			return 0, err
		}
		if under++; under < inFlight {
			continue
		}
		if _, err := b.s.message(b.buf[:]); err != nil {
			return 0, err
		}
		under--
	}
	for range under {
		if _, err := b.s.message(b.buf[:]); err != nil {
			return 0, err
		}
	}
	return time.Since(start) / time.Duration(n*together), nil
}

// close ends the server; a nil one is none.
func (b *bare) close() {
	if b == nil {
		return
	}
	_ = b.s.c.Close()
	_ = b.cmd.Wait()
}
