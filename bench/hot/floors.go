package main

import (
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/bulk"
)

// workingSet is what floors and transfers walk through, so that caches hold
// none of it.
const workingSet = 512 << 20

// buffers are the process's own memory: what an engine's host pool would be.
type buffers struct{ src, dst []byte }

func newBuffers() *buffers {
	b := &buffers{make([]byte, workingSet), make([]byte, workingSet)}
	for i := range b.src {
		b.src[i] = byte(i * 7)
	}
	copy(b.dst, b.src) // faults the pages in
	return b
}

// part is the i-th piece of size bytes, walking round.
func part(p []byte, i, size int) []byte {
	off := i * size % (len(p) - size + 1)
	return p[off : off+size]
}

// copies are the ways to copy. The runtime's copy stores past the caches from 1
// MiB on, which is the best way on some processors and the worst on others.
var copies = []func(dst, src []byte) int{
	func(dst, src []byte) int { return copy(dst, src) },
	inPieces(32 << 10), inPieces(128 << 10), inPieces(512 << 10),
	bulk.CopyCold,
}

// inPieces is a copy in pieces of so many bytes.
func inPieces(bytes int) func(dst, src []byte) int {
	return func(dst, src []byte) int {
		for at := 0; at < len(src); at += bytes {
			copy(dst[at:], src[at:min(at+bytes, len(src))])
		}
		return len(src)
	}
}

// floorCopy is C: the time to copy one piece of size bytes in the way that is
// best here.
func floorCopy(b *buffers, size int) time.Duration {
	n := workingSet / size
	best := time.Duration(math.MaxInt64)
	for _, way := range copies {
		start := time.Now()
		for i := range n {
			way(part(b.dst, i, size), part(b.src, i, size))
		}
		best = min(best, time.Since(start)/time.Duration(n))
	}
	return best
}

// floorHash is H: the time to hash one cold piece of size bytes.
func floorHash(b *buffers, size int) time.Duration {
	n := workingSet / size
	sum := uint64(0)
	start := time.Now()
	for i := range n {
		sum += arena.Checksum(part(b.src, i, size))
	}
	took := time.Since(start) / time.Duration(n)
	runtime.KeepAlive(sum) // or the loop would have nothing to do
	return took
}

const (
	echoBytes  = 18 // as long as a ping
	echoTrips  = 5000
	echoWarmup = 200
)

// echoServer is the bare echo: it sends each message back until the end.
func echoServer(path string, spin time.Duration) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	c, err := l.AcceptUnix()
	if err != nil {
		return err
	}
	e, err := newEcho(c, spin)
	if err != nil {
		return err
	}
	buf := make([]byte, 4096)
	for {
		n, err := e.read(buf)
		if err != nil {
			return nil // the client is done
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return nil
		}
	}
}

// echo is one end of a bare connection: read blocks, or polls first.
type echo struct {
	c    *net.UnixConn
	raw  syscall.RawConn
	spin time.Duration
}

func newEcho(c *net.UnixConn, spin time.Duration) (*echo, error) {
	raw, err := c.SyscallConn()
	return &echo{c, raw, spin}, err
}

func (e *echo) read(p []byte) (n int, err error) {
	if e.spin == 0 {
		return e.c.Read(p)
	}
	rerr := e.raw.Read(func(fd uintptr) bool {
		for start := time.Now(); ; {
			n, err = syscall.Read(int(fd), p)
			if err != syscall.EAGAIN {
				return true
			}
			if time.Since(start) > e.spin {
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

// echoClient is the other process's partner.
type echoClient struct {
	cmd *exec.Cmd
	e   *echo
}

func startEcho(dir, name string, spin time.Duration) (*echoClient, error) {
	path := filepath.Join(dir, name)
	cmd := exec.Command(os.Args[0], "echo", path, spin.String())
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	conn, err := dialWhenUp(path)
	if err != nil {
		return nil, fmt.Errorf("echo: %w", err)
	}
	e, err := newEcho(conn, spin)
	return &echoClient{cmd, e}, err
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
func (c *echoClient) trip() error {
	var buf [echoBytes]byte
	if _, err := c.e.c.Write(buf[:]); err != nil {
		return err
	}
	_, err := c.e.read(buf[:])
	return err
}

// timed is the mean time of a round trip after a warm-up.
func timed(trip func() error) (time.Duration, error) {
	for range echoWarmup {
		if err := trip(); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	for range echoTrips {
		if err := trip(); err != nil {
			return 0, err
		}
	}
	return time.Since(start) / echoTrips, nil
}

const (
	idleTrips = 200
	idleFor   = 2 * time.Millisecond // long enough that both sides sleep
)

// timedIdle is the median time of a round trip after a pause, as an engine
// makes it: both sides and their CPUs have to be woken.
func timedIdle(trip func() error) (time.Duration, error) {
	took := make([]time.Duration, idleTrips)
	for i := range took {
		time.Sleep(idleFor)
		start := time.Now()
		if err := trip(); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	return median(took), nil
}

// close ends the echo; a nil one is none.
func (c *echoClient) close() {
	if c == nil {
		return
	}
	_ = c.e.c.Close()
	_ = c.cmd.Wait()
}
