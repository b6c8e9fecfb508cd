package trouble

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/internal/wire"
)

var memoryGroupTest = flag.Bool("memory-group", false, "run TestMemoryInGroup, which takes 1.3 GiB and all processors for some seconds")

const (
	groupDRAM  = 256 << 20
	groupBytes = groupDRAM + 1<<30 // what the daemon lives in
	// groupLeft is how much anonymous memory may be left of what clients cost.
	groupLeft = 32 << 20
)

// startInGroup runs a daemon with its front ends in a control group.
func startInGroup(t *testing.T) (d *daemon.Daemon, resp string) {
	t.Helper()
	_, under := daemon.Cage(t, groupBytes)
	if under == nil {
		t.Skip("no memory control group can be made here; run as root, where the kernel has the memory controller")
	}
	d = daemon.Folder(t, func(c *config.Config) {
		resp = filepath.Join(filepath.Dir(c.Listen.Socket), "resp")
		c.CPU.Capacity, c.Listen.RESP = groupDRAM, []string{resp}
	})
	d.Under = under
	d.Start()
	return d, resp
}

// costly opens connections that cost memory, all at once, and leaves them open.
type costly struct {
	t     *testing.T
	d     *daemon.Daemon
	resp  string
	mu    sync.Mutex
	conns []io.Closer
}

func (r *costly) keep(c io.Closer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, c)
}

// crowd runs n clients, which end when the daemon does not take more of them.
func (r *costly) crowd(n int, one func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { one(i) })
	}
	all.Wait()
}

// greeted is a connection behind its hello, which waits for nothing longer than
// the daemon takes to see that it does not read.
func (r *costly) greeted() net.Conn {
	conn, err := net.Dial("unix", r.d.Socket)
	if err != nil {
		return nil
	}
	r.keep(conn)
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, err = conn.Write(wire.AppendRequest(nil, wire.OpHello, 1, &wire.HelloRequest{MinVersion: 1, MaxVersion: wire.Version, HasSpace: true, Space: load.Space}))
	if err == nil {
		var h [wire.HeaderBytes]byte
		if _, err = io.ReadFull(conn, h[:]); err == nil {
			_, err = io.CopyN(io.Discard, conn, int64(wire.DecodeHeader(h[:]).BodyBytes))
		}
	}
	if err != nil {
		return nil
	}
	return conn
}

// halfFrames begins frames of 64 MiB and never ends them.
func (r *costly) halfFrames() {
	half := append(wire.Header{BodyBytes: 64 << 20, Op: wire.OpPut, ID: 2}.Append(nil), make([]byte, 60<<20)...)
	r.crowd(24, func(int) {
		if c := r.greeted(); c != nil {
			_, _ = c.Write(half)
		}
	})
}

// untouched commits from windows that it has never written.
func (r *costly) untouched() {
	for i := range 26 {
		c, err := client.Dial(r.t.Context(), r.d.Socket, client.Options{Space: &load.Space, StagingBytes: 1 << 30})
		if err != nil {
			r.t.Error(err)
			return
		}
		r.keep(c)
		chain := load.Chain(r.t, load.Space, uint64(1000+i), 48)
		f, err := c.Reserve(r.t.Context(), client.Chain(chain), client.ReserveOptions{Sizes: []uint32{1 << 20}, Wait: 10 * time.Second})
		if err == nil {
			_, err = f.Commit(r.t.Context())
		}
		if err != nil {
			r.t.Errorf("window %d: %v", i, err)
		}
	}
}

// deafGets asks for copies of what untouched has stored last, and reads none.
func (r *costly) deafGets() {
	chain := load.Chain(r.t, load.Space, 1025, 48)
	ask := wire.GetRequest{Chain: wire.Chain{Form: wire.FormHashes, Width: 16}}
	for _, h := range chain.Hashes {
		ask.Chain.Hashes = append(ask.Chain.Hashes, h[:]...)
	}
	r.crowd(48, func(int) {
		c := r.greeted()
		for id := uint64(2); c != nil && id < 10; id++ {
			if _, err := c.Write(wire.AppendRequest(nil, wire.OpGet, id, &ask)); err != nil {
				break
			}
		}
	})
}

// deafRedis asks for values of 4 MiB and reads none.
func (r *costly) deafRedis() {
	one, err := net.Dial("unix", r.resp)
	if err != nil {
		r.t.Error(err)
		return
	}
	r.keep(one)
	_, err = fmt.Fprintf(one, "*3\r\n$3\r\nSET\r\n$1\r\nv\r\n$%d\r\n%s\r\n", 4<<20, strings.Repeat("v", 4<<20))
	if line, rerr := bufio.NewReader(one).ReadString('\n'); err != nil || line != "+OK\r\n" {
		r.t.Errorf("%q, %v, %v", line, err, rerr)
	}
	get := strings.Repeat("*2\r\n$3\r\nGET\r\n$1\r\nv\r\n", 64)
	r.crowd(300, func(int) {
		if c, err := net.Dial("unix", r.resp); err == nil {
			r.keep(c)
			_, _ = io.WriteString(c, get) // it may be closed already
		}
	})
}

// The daemon lives in a control group of cpu.capacity and 1 GiB under clients
// that cost much more than that: half frames of 1.4 GiB, replies that no
// client reads, windows of 26 GiB that no client has written. Some of them lose their
// connections; one that costs little is served, and when the others have gone so
// has their memory.
func TestMemoryInGroup(t *testing.T) {
	if !*memoryGroupTest {
		t.Skip("takes memory and processors that others need; -memory-group runs it")
	}
	d, resp := startInGroup(t)
	r := &costly{t: t, d: d, resp: resp}
	before := d.AnonymousBytes()
	closed := func() (n uint64, st *daemon.Stats) {
		st, err := d.Ask(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, reasons := range st.Memory.Closed {
			n += reasons["memory"] + reasons["uid_memory"]
		}
		return n, st
	}
	for _, stage := range []struct {
		name  string
		do    func()
		bound bool // some are closed
	}{
		{"untouched windows", r.untouched, false},
		{"deaf gets", r.deafGets, true},
		{"deaf Redis clients", r.deafRedis, true},
		{"half frames", r.halfFrames, true},
	} {
		had, _ := closed()
		stage.do()
		now, st := closed()
		for end := time.Now().Add(time.Minute); stage.bound && now == had; now, st = closed() {
			if time.Now().After(end) {
				t.Fatalf("%s: none of them loses its connection; %+v", stage.name, st.Memory)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if m := st.Memory; m.UsedBytes > m.LimitBytes {
			t.Errorf("%s: %d bytes are charged, the limit is %d", stage.name, m.UsedBytes, m.LimitBytes)
		}
		t.Logf("%s: %d closed, %d MiB charged, %d MiB of it in sockets, %d MiB of anonymous memory",
			stage.name, now-had, st.Memory.UsedBytes>>20, st.Memory.SocketBytes>>20, d.AnonymousBytes()>>20)
	}
	for _, c := range r.conns {
		_ = c.Close()
	}
	for end := time.Now().Add(time.Minute); d.AnonymousBytes() > before+groupLeft; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d MiB of anonymous memory are left; there were %d", d.AnonymousBytes()>>20, before>>20)
		}
	}
}
