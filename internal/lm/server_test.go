package lm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/blob/blobtest"
	"github.com/kvstored/kvstored/internal/lm"
	"github.com/kvstored/kvstored/tier/tierfault"
)

const patience = time.Minute // bounds what should take no time at all

const (
	put = iota + 1
	get
	exist
	list
	health
)

// request is written from the table of the protocol, not from the code.
func request(command, length int32, key string, meta ...int32) []byte {
	var b []byte
	for _, n := range append([]int32{command, length}, meta...) {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	b = append(b, make([]byte, 36-len(b))...)
	b = append(b, key...)
	return append(b, bytes.Repeat([]byte{' '}, 186-len(b))...)
}

// client is one connection. If slow it writes byte by byte.
type client struct {
	net.Conn
	t    *testing.T
	slow bool
}

func newRig(t *testing.T, network string) (r *blobtest.Rig, dial func(slow bool) *client) {
	return newRigOf(t, network, lm.Options{})
}

func newRigOf(t *testing.T, network string, o lm.Options) (r *blobtest.Rig, dial func(slow bool) *client) {
	r = blobtest.New(t, 64<<20)
	o.Store, o.NewOwner, o.CloseOwner, o.Log = r.Store, r.Stack.NewOwner, r.Stack.CloseOwner, zerolog.Nop()
	s := lm.New(o)
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); serving.Wait() })
	return r, func(slow bool) *client {
		c, err := net.Dial(network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
		return &client{c, t, slow}
	}
}

func (c *client) send(b []byte) {
	c.t.Helper()
	pieces := [][]byte{b}
	if c.slow {
		pieces = slices.Collect(slices.Chunk(b, 1))
	}
	for _, p := range pieces {
		if _, err := c.Write(p); err != nil {
			c.t.Fatal(err)
		}
	}
}

// reply reads code, length, fmt, dtype, shape, location, and so many bytes.
func (c *client) reply(payload string, want ...int32) {
	c.t.Helper()
	b := make([]byte, 36+len(payload))
	if _, err := io.ReadFull(c, b); err != nil {
		c.t.Fatal(err)
	}
	var got []int32
	for i := range 9 {
		got = append(got, int32(binary.LittleEndian.Uint32(b[4*i:])))
	}
	if !slices.Equal(got, want) {
		c.t.Errorf("reply %d, want %d", got, want)
	}
	if string(b[36:]) != payload {
		c.t.Error("the payload is not what was stored")
	}
}

func TestProtocol(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		_, dial := newRig(t, network)
		testProtocol(t, dial)
	}
}

func testProtocol(t *testing.T, dial func(slow bool) *client) {
	t.Helper()
	for _, slow := range []bool{false, true} {
		c := dial(slow)
		key := "vllm@model@1@0@abc"
		if slow {
			key += "slow"
		}
		miss := []int32{400, 0, 1, 2, 0, 0, 0, 0, 0}
		c.send(request(health, 0, ""))
		c.reply("", 200, 0, 1, 2, 0, 0, 0, 0, 0)
		c.send(request(get, 0, key))
		c.reply("", miss...)
		c.send(request(exist, 0, key))
		c.reply("", miss...)
		payload := string(bytes.Repeat([]byte("01234567"), 1000))
		for _, p := range []string{payload, "", payload[:5]} {
			c.send(append(request(put, int32(len(p)), key, 3, 5, 1, 2, 32, 256, 1024), p...))
			c.send(request(exist, 0, key))
			c.reply("", 200, 0, 1, 2, 0, 0, 0, 0, 0)
			c.send(request(get, 0, key))
			c.reply(p, 200, int32(len(p)), 3, 5, 2, 32, 256, 1024, 1)
		}
		c.send(request(list, 0, ""))
		c.reply("", miss...)
	}
}

func TestLargeAndRestart(t *testing.T) {
	r, dial := newRig(t, "unix")
	c := dial(false)
	payload := string(bytes.Repeat([]byte("0123456789abcdef"), 1<<19)) // 8 MiB
	long := string(bytes.Repeat([]byte("k"), 150))
	c.send(append(request(put, int32(len(payload)), long, 1, 2), payload...))
	c.send(request(get, 0, long))
	c.reply(payload, 200, int32(len(payload)), 1, 2, 0, 0, 0, 0, 0)
	// A payload without room is passed over; it will be missed.
	huge := make([]byte, 40<<20)
	c.send(append(request(put, int32(len(huge)), "huge"), huge...))
	c.send(request(get, 0, "huge"))
	c.reply("", 400, 0, 1, 2, 0, 0, 0, 0, 0)
	r.Flush()
}

// A put that cannot be kept takes the old payload with it, also where that lies
// on a disk in trouble. Where this is not certain the connection ends.
func TestDroppedPut(t *testing.T) {
	r, dial := newRig(t, "unix")
	miss := []int32{400, 0, 1, 2, 0, 0, 0, 0, 0}
	put := func(c *client, key, payload string) {
		t.Helper()
		c.send(append(request(put, int32(len(payload)), key, 1, 2), payload...))
	}
	gone := func(c *client, key string) {
		t.Helper()
		for _, command := range []int32{get, exist} {
			c.send(request(command, 0, key))
			c.reply("", miss...)
		}
	}
	c := dial(false)
	put(c, "full", "old")
	put(c, "full", string(make([]byte, 40<<20)))
	gone(c, "full")
	put(c, "full", "new")
	c.send(request(get, 0, "full"))
	c.reply("new", 200, 3, 1, 2, 0, 0, 0, 0, 0)
	put(c, "disk", "old")
	c.send(request(health, 0, ""))
	c.reply("", 200, 0, 1, 2, 0, 0, 0, 0, 0)
	r.Flush()
	r.Fault(func(tierfault.Call) tierfault.Fault { return tierfault.Fault{Err: errors.New("broken")} })
	put(c, "disk", "new")
	gone(c, "disk")
	if r.Owed() != 1 {
		t.Errorf("%d deletions are owed", r.Owed())
	}
	r.Fault(nil)
	for end := time.Now().Add(patience); r.Owed() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the old payload stays owed")
		}
	}
}

func TestUncertainPut(t *testing.T) {
	r, dial := newRig(t, "unix")
	c := dial(false)
	c.send(append(request(put, 3, "a", 1, 2), "old"...))
	c.send(request(health, 0, ""))
	c.reply("", 200, 0, 1, 2, 0, 0, 0, 0, 0)
	r.Flush()
	r.Fault(func(tierfault.Call) tierfault.Fault { return tierfault.Fault{Err: errors.New("broken")} })
	if err := os.RemoveAll(filepath.Dir(r.OwedFile)); err != nil {
		t.Fatal(err)
	}
	c.send(append(request(put, 3, "a", 1, 2), "new"...))
	if b, err := io.ReadAll(c); len(b) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it is told %x, %v", b, err)
	}
	c = dial(false)
	c.send(request(get, 0, "a"))
	c.reply("", 400, 0, 1, 2, 0, 0, 0, 0, 0)
	r.Fault(nil)
}

func TestGarbage(t *testing.T) {
	r, dial := newRig(t, "unix")
	for _, b := range [][]byte{
		request(0, 0, "a"), request(6, 0, "a"), request(-1, -1, "a"), request(put, -1, "a"),
		bytes.Repeat([]byte{0xff}, 186), []byte("GET / HTTP/1.1\r\n\r\n"), append(request(put, 1000, "a"), "short"...),
	} {
		c := dial(false)
		c.send(b)
		_ = c.Conn.(*net.UnixConn).CloseWrite()
		if got, _ := io.ReadAll(c); len(got) != 0 {
			t.Errorf("%q was answered with %q", b[:8], got)
		}
	}
	if n := r.Count(); n != 0 {
		t.Errorf("garbage was stored: %d values", n)
	}
}

// Who may not connect is not served.
func TestAdmit(t *testing.T) {
	_, dial := newRigOf(t, "unix", lm.Options{Admit: func(net.Conn) (access.Peer, error) { return nil, errors.New("not you") }})
	c := dial(false)
	_, _ = c.Write(request(health, 0, "")) // it may be closed already
	if b, err := io.ReadAll(c); len(b) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it is told %x, %v", b, err)
	}
}
