package server_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/socket"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/test/pipe"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// staged is the features of a connection that maps memory.
const staged = wire.FeatureArena | wire.FeatureStaging

const (
	kib = 1 << 10
	mib = 1 << 20

	size   = 16 * kib // of most payloads
	tokens = 16       // of a chunk

	// patience bounds what should take no time at all.
	patience = time.Minute

	roomWait = 20 * time.Second // of rigs whose requests wait for room in vain
)

// space is the one that tests use; its hashes are given.
var space = key.Space{Model: "m", World: 1, DType: "bf16", ChunkTokens: tokens, Method: key.Given}

// rig is a server over a store over a DRAM tier and a disk in plain memory.
// When its test ends everything must be at rest: nothing held, no goroutine
// left, and no block without an entry.
type rig struct {
	t        testing.TB
	socket   string
	arena    *arena.Arena
	hot      *cpu.Tier
	disk     *tiertest.Memory
	tiers    *store.Store
	server   *server.Server
	listener net.Listener
	local    *pipe.Listener // nil: listener is a socket's

	cancel context.CancelFunc // ends the server
	served chan error
	logged chan struct{} // closed when the log of events has ended
}

// options of a rig, on top of those of the server.
type options struct {
	server.Options
	capacity int64                    // of DRAM; 0 = 4 MiB
	touch    func([]byte, bool) error // see arena.Options
	limits   ledger.Limits
	hook     tierfault.Hook // in front of the disk
	workers  int            // that write to the disk; 0: as usual
	quotas   []store.Quota
	lone     bool // no disk
	far      bool // the disk is in the place of the remote tier
	scanning bool // the disk is being read when the test begins
	sockets  bool // clients connect by a Unix socket, in real time; else the test is in a bubble
	roomWait time.Duration
}

func newRig(t testing.TB, o options) *rig {
	t.Helper()
	r := &rig{t: t, socket: filepath.Join(t.TempDir(), "s")}
	_, tests := t.(*testing.T) // benchmarks and fuzz targets have no bubble
	if tests && !o.sockets {
		inBubble(t)
		r.local = pipe.Listen(r.socket)
	}
	capacity := cmp.Or(o.capacity, 4*mib)
	var err error
	r.arena, err = arena.New(arena.Options{CapacityBytes: capacity, Touch: o.touch})
	r.must(err)
	lru, err := policy.New("lru", capacity)
	r.must(err)
	var quotas []ledger.Quota
	for _, q := range o.quotas {
		quotas = append(quotas, ledger.Quota{Bytes: q.Bytes})
	}
	r.hot = cpu.New(cpu.Options{
		Arena:         r.arena,
		Ledger:        ledger.New(ledger.Options{CapacityBytes: capacity, Entries: max(4096, int(capacity)>>10), Policy: lru, Limits: o.limits, Quotas: quotas}),
		HighWatermark: 0.95, LowWatermark: 0.90,
	})
	r.disk = tiertest.NewMemory("disk", 64*mib)
	so := store.Options{Hot: r.hot, Below: []store.Below{{Place: tier.Disk, Tier: r.disk}}, Workers: o.workers, Quotas: o.quotas, Events: o.Events, RoomWait: o.roomWait, Log: zerolog.Nop()}
	if o.lone {
		so.Below = nil
	}
	if o.far {
		so.Below[0].Place = tier.Remote
	}
	if o.hook != nil {
		so.Below[0].Tier = tierfault.Wrap(r.disk, o.hook)
	}
	r.tiers = store.New(so)
	r.serve(o.Options)
	if !o.scanning { // what the disk does not say in time is refused meanwhile
		r.until("the disk has been read", r.tiers.Recovery.Ready)
	}
	return r
}

// unbounded is the claims that tests may make.
var unbounded = hint.ClaimLimits{TotalBytes: 1 << 40, UserBytes: 1 << 39, Duration: time.Hour}

// serve starts everything, and stops it when the test ends.
func (r *rig) serve(o server.Options) {
	o.Store, o.Arena = r.tiers, r.arena
	o.LeaseMaxAge = cmp.Or(o.LeaseMaxAge, time.Minute)
	o.PinMaxAge = cmp.Or(o.PinMaxAge, time.Minute)
	o.Prefetch.Policy = cmp.Or(o.Prefetch.Policy, wire.PolicyTimeout)
	o.Prefetch.Deadline = cmp.Or(o.Prefetch.Deadline, patience)
	o.Prefetch.WindowBytes = cmp.Or(o.Prefetch.WindowBytes, mib)
	if o.Retain == (hint.ClaimLimits{}) {
		o.Retain = unbounded
	}
	o.ChunkTokens, o.Method, o.Version, o.Epoch = tokens, "sha256", "test", 42
	o.Log = zerolog.Nop()
	r.server = server.New(o)

	below, stopBelow := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.tiers.Run(below) }()
	r.logged = make(chan struct{})
	go func() {
		defer close(r.logged)
		if o.Events != nil {
			_ = o.Events.Run(below)
		}
	}()
	if r.local != nil {
		r.listener = r.local
	} else {
		l, err := socket.Listen(r.socket, 0o600, "")
		r.must(err)
		r.listener = l
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.served = cancel, make(chan error, 1)
	go func() { r.served <- r.server.Serve(ctx, r.listener) }()
	r.t.Cleanup(func() {
		r.stop()
		r.tiers.Loader.Wait()
		stopBelow()
		<-r.logged
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
		r.checkRest()
	})
}

// stop ends the server; everything that clients held has been given back then.
func (r *rig) stop() {
	r.cancel()
	select {
	case err := <-r.served:
		if err != nil {
			r.t.Error(err)
		}
		r.served <- nil
	case <-time.After(patience):
		buf := make([]byte, 1<<20)
		r.t.Fatalf("the server does not stop:\n%s", buf[:runtime.Stack(buf, true)])
	}
}

// checkRest checks that nothing is left of anything. Of goroutines the bubble does.
func (r *rig) checkRest() {
	r.t.Helper()
	if r.t.Failed() {
		return
	}
	l, a := r.hot.Ledger().Stats(), r.arena.Stats()
	if l.ProtectedBytes != 0 || l.Filling != 0 || l.LeavingBytes != 0 || l.Owners != 0 || l.ClassBytes != [len(l.ClassBytes)]int64{} {
		r.t.Errorf("something is still held: %+v", l)
	}
	if a.Blocks != int64(l.Entries) || a.UsedBytes != l.UsedBytes {
		r.t.Errorf("%d blocks with %d bytes for %d entries with %d bytes", a.Blocks, a.UsedBytes, l.Entries, l.UsedBytes)
	}
	if err := r.hot.Close(); err != nil {
		r.t.Error(err)
	}
	if err := r.arena.Close(); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// inBubble says what is missing where a rig is made in no bubble.
func inBubble(t testing.TB) {
	t.Helper()
	defer func() {
		if recover() != nil {
			t.Fatal("begin the test with synctest.Test, or set options.sockets")
		}
	}()
	synctest.Wait()
}

// part is a part of a test in a bubble, where there are no subtests.
func part(t *testing.T, name string, do func(t *testing.T)) {
	t.Helper()
	failed := t.Failed()
	defer func() {
		if t.Failed() && !failed {
			t.Logf("that was in %q", name)
		}
	}()
	do(t)
}

// poll waits until cond holds.
func poll(cond func() bool) bool {
	for end := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// until has everything go on until it waits for time to pass or for the test. Then cond
// must hold. Outside a bubble it waits for that.
func (r *rig) until(what string, cond func() bool) {
	r.t.Helper()
	held := false
	if r.local == nil {
		held = poll(cond)
	} else {
		synctest.Wait()
		held = cond()
	}
	if !held {
		r.t.Fatalf("never: %s; ledger %+v, server %+v", what, r.hot.Ledger().Stats(), r.server.Stats())
	}
}

// after is until, and cond must hold once this much time has passed, and no moment before.
func (r *rig) after(d time.Duration, what string, cond func() bool) {
	r.t.Helper()
	time.Sleep(d - 1)
	synctest.Wait()
	if cond() {
		r.t.Errorf("before %v have passed: %s", d, what)
	}
	time.Sleep(time.Nanosecond)
	r.until(what, cond)
}

// takes checks how much time do takes.
func (r *rig) takes(want time.Duration, what string, do func()) {
	r.t.Helper()
	begun := time.Now()
	if do(); time.Since(begun) != want {
		r.t.Errorf("%s takes %v, want %v", what, time.Since(begun), want)
	}
}

// leased is how many bytes clients hold by leases and fills.
func (r *rig) leased() int64 { return r.hot.Ledger().Stats().ClassBytes[ledger.Lease] }

func (r *rig) pinned() int64 { return r.hot.Ledger().Stats().ClassBytes[ledger.Pin] }

// dial connects with the Go client.
func (r *rig) dial(o client.Options) *client.Client {
	r.t.Helper()
	if o.Space == nil {
		o.Space = &space
	}
	o.Dialer = r.dialer()
	c, err := client.Dial(r.t.Context(), r.socket, o)
	r.must(err)
	r.t.Cleanup(func() { c.Close() })
	return c
}

// dialer connects within the process; nil where clients connect by a socket.
func (r *rig) dialer() func(context.Context, string) (net.Conn, error) {
	if r.local == nil {
		return nil
	}
	return func(ctx context.Context, _ string) (net.Conn, error) { return r.local.Dial(ctx) }
}

// chain is a prompt of n chunks; the same seed gives the same.
func chain(seed uint64, n int) *key.Chain { return chainIn(space, seed, n) }

func chainIn(s key.Space, seed uint64, n int) *key.Chain {
	c := tiertest.Chain(seed, n)
	id, err := s.ID()
	if err != nil {
		panic(err)
	}
	c.Space, c.Chained = id, false
	return c
}

// onDisk puts chunks from..to of c on disk only.
func (r *rig) onDisk(c *key.Chain, from, to int) {
	r.t.Helper()
	r.onDiskSized(c, from, to, size)
}

// onDiskSized is onDisk with payloads of so many bytes.
func (r *rig) onDiskSized(c *key.Chain, from, to, bytes int) {
	r.t.Helper()
	r.storeSized(c, from, to, bytes)
	r.must(r.tiers.Writers.Flush(r.t.Context(), false))
	r.must(r.hot.Delete(r.t.Context(), tiertest.Keys(c, from, to)))
	for i := from; i < to; i++ { // what DRAM no longer has, the index learns by holding
		o := r.tiers.Leases.NewOwner()
		r.tiers.Leases.Hold(o, ledger.IO, c, i, i+1, make([]tier.Ref, 1))
		r.tiers.Leases.CloseOwner(o)
	}
}

// store commits chunks from..to of c.
func (r *rig) store(c *key.Chain, from, to int) { r.storeSized(c, from, to, size) }

func (r *rig) storeSized(c *key.Chain, from, to, bytes int) {
	r.t.Helper()
	o := r.tiers.Leases.NewOwner()
	defer r.tiers.Leases.CloseOwner(o)
	for i := from; i < to; i++ {
		var g [1]store.Grant
		_, err := r.tiers.Filler.Reserve(r.t.Context(), store.Reservation{Owner: o}, c, i, []uint32{uint32(bytes)}, g[:])
		r.must(err)
		g[0].Ref.Block.SealSum(g[0].Ref.Block.Write(tiertest.Payload(c.Key(i), bytes)))
		r.tiers.Filler.Commit(c, i, []tier.Ref{g[0].Ref}, 0, make([]bool, 1))
	}
}

// raw is a client that sends any frame that a test makes.
type raw struct {
	t     testing.TB
	nc    net.Conn
	conn  *wire.Conn
	next  uint64
	hello wire.HelloReply
	space uint32
	last  *os.File // of its descriptors: the staging window, if it has one
	// what arrived and was not asked for yet
	replies map[uint64]frame
	pushes  []frame
}

type frame struct {
	wire.Header
	body []byte
}

// connect connects and says nothing.
func (r *rig) connect() *raw {
	r.t.Helper()
	var nc net.Conn
	var err error
	if r.local != nil {
		nc, err = r.local.Dial(r.t.Context())
	} else {
		nc, err = net.Dial("unix", r.socket)
	}
	r.must(err)
	return newRaw(r.t, nc)
}

func newRaw(t testing.TB, nc net.Conn) *raw {
	t.Helper()
	t.Cleanup(func() { nc.Close() })
	conn, err := wire.NewConn(nc)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetMaxBody(wire.MaxBodyBytes)
	limit := patience
	if _, ok := nc.(*pipe.Conn); ok {
		limit = 24 * time.Hour
	}
	if err := conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
	return &raw{t: t, nc: nc, conn: conn, replies: make(map[uint64]frame)}
}

// greet connects, says hello and opens the space.
func (r *rig) greet(wants wire.Features) *raw {
	r.t.Helper()
	c := r.connect()
	c.greet(wants)
	return c
}

func (c *raw) greet(wants wire.Features) { c.say(&wire.HelloRequest{Wants: wants}) }

// say says hello, as m has it.
func (c *raw) say(m *wire.HelloRequest) {
	c.t.Helper()
	m.MinVersion, m.MaxVersion, m.Name = 2, 2, "raw"
	if !m.HasSpace {
		m.HasSpace, m.Space = true, space
	}
	c.send(wire.OpHello, m)
	h, body, files, err := c.conn.ReadFrameFiles()
	if err != nil || h.Code != wire.CodeOK {
		c.t.Fatalf("hello: %v %v %s", h, err, body)
	}
	if n := len(files); n > 0 {
		c.last = files[n-1]
		c.t.Cleanup(func() { c.last.Close() })
		for _, f := range files[:n-1] {
			f.Close()
		}
	}
	if err := c.hello.Decode(body); err != nil || int(c.hello.Descriptors) != len(files) {
		c.t.Fatalf("hello: %v, %d descriptors, %+v", err, len(files), c.hello)
	}
	c.space = c.hello.Space.Handle
}

// chain is p on this connection.
func (c *raw) chain(p *key.Chain) wire.Chain {
	ch := wire.Chain{Space: c.space, Form: wire.FormHashes, Width: 16, Skip: uint32(p.Skip), SaveUnfull: true}
	if n := len(p.Tokens); n > 0 {
		ch.LastTokens = p.Tokens[n-1]
	}
	for _, h := range p.Hashes {
		ch.Hashes = append(ch.Hashes, h[:]...)
	}
	return ch
}

func refChain(id uint64) wire.Chain { return wire.Chain{Form: wire.FormRef, ID: id} }

// write sends bytes.
func (c *raw) write(p []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(p); err != nil {
		c.t.Fatal(err)
	}
}

// send sends a request and returns its id.
func (c *raw) send(op wire.Op, m wire.Message) uint64 {
	c.t.Helper()
	c.next++
	c.write(wire.AppendRequest(nil, op, c.next, m))
	return c.next
}

// read reads one frame.
func (c *raw) read() (frame, error) {
	h, body, err := c.conn.ReadFrame()
	return frame{h, append([]byte(nil), body...)}, err
}

// take reads until the reply with this id is there.
func (c *raw) take(id uint64) frame {
	c.t.Helper()
	for {
		if f, ok := c.replies[id]; ok {
			delete(c.replies, id)
			return f
		}
		f, err := c.read()
		if err != nil {
			c.t.Fatalf("waiting for reply %d: %v", id, err)
		}
		if f.Kind == wire.KindPush {
			c.pushes = append(c.pushes, f)
		} else {
			c.replies[f.ID] = f
		}
	}
}

// await decodes the reply with this id, which must be ok.
func (c *raw) await(id uint64, reply wire.Message) {
	c.t.Helper()
	f := c.take(id)
	if f.Code != wire.CodeOK {
		c.t.Fatalf("%s: %s: %s", f.Op, f.Code, text(f))
	}
	if err := reply.Decode(f.body); err != nil {
		c.t.Fatal(err)
	}
}

func text(f frame) string {
	var m wire.ErrorReply
	if err := m.Decode(f.body); err != nil {
		return err.Error()
	}
	return m.Text
}

// do asks and awaits the answer.
func (c *raw) do(op wire.Op, m, reply wire.Message) {
	c.t.Helper()
	c.await(c.send(op, m), reply)
}

// refused asks for something that must be refused with a status and a text.
func (c *raw) refused(want wire.Code, op wire.Op, m wire.Message) {
	c.t.Helper()
	f := c.take(c.send(op, m))
	if f.Code != want || text(f) == "" {
		c.t.Fatalf("%s: status %s (%q), want %s", op, f.Code, text(f), want)
	}
}

// ended checks that the daemon closes the connection, after at most some
// more frames.
func (c *raw) ended() {
	c.t.Helper()
	for {
		_, err := c.read()
		var timeout net.Error
		switch {
		case err == nil:
		case errors.As(err, &timeout) && timeout.Timeout():
			c.t.Fatal("the connection stays")
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return
		default: // reset, because it had not read everything
			return
		}
	}
}

// pushed waits for the next push.
func (c *raw) pushed() (job uint64, st wire.JobState) {
	c.t.Helper()
	for len(c.pushes) == 0 {
		f, err := c.read()
		if err != nil {
			c.t.Fatalf("waiting for a push: %v", err)
		}
		if f.Kind == wire.KindPush {
			c.pushes = append(c.pushes, f)
		} else {
			c.replies[f.ID] = f
		}
	}
	f := c.pushes[0]
	c.pushes = c.pushes[1:]
	if err := st.Decode(f.body); err != nil {
		c.t.Fatal(err)
	}
	return f.ID, st
}

// reserve reserves all of p.
func (c *raw) reserve(p *key.Chain) wire.ReserveReply {
	c.t.Helper()
	var m wire.ReserveReply
	c.do(wire.OpReserve, &wire.ReserveRequest{Chain: c.chain(p), Sizes: wire.ViewU32s([]uint32{size})}, &m)
	return m
}

func (c *raw) prefetch(p *key.Chain) wire.PrefetchReply {
	c.t.Helper()
	var m wire.PrefetchReply
	c.do(wire.OpPrefetch, &wire.PrefetchRequest{Chain: c.chain(p)}, &m)
	return m
}

func (c *raw) ping() {
	c.t.Helper()
	c.do(wire.OpPing, wire.EmptyRequest{}, wire.EmptyReply{})
}

// put stores chunks from..to of p, as far as there is room for them, through the
// Go client, in slots or inline as c does.
func put(ctx context.Context, c *client.Client, p *key.Chain, from, to int) error {
	f, err := c.Reserve(ctx, client.Chain(p), client.ReserveOptions{First: from - p.Skip, Count: to - from, Size: size})
	if err != nil {
		return err
	}
	for i := range f.Len() {
		if f.Status(i) == client.Granted {
			copy(f.Bytes(i), tiertest.Payload(p.Key(from+i), size))
		}
	}
	results, err := f.Commit(ctx)
	if err != nil {
		return err
	}
	for i, s := range results {
		if f.Status(i) != client.Granted {
			continue
		}
		switch s.Code {
		case client.ResultNotGranted, client.ResultDiffers:
			return fmt.Errorf("chunk %d: %s", from+i, s.Code)
		}
	}
	return nil
}

// alone is a prompt of chunks that each stand alone.
func alone(hashes ...key.Hash) client.Prompt {
	return client.Chain(&key.Chain{Hashes: hashes, Tokens: slices.Repeat([]uint32{tokens}, len(hashes)), Alone: true})
}
