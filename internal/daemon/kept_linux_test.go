package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/database/databasetest"
	"github.com/kvstored/kvstored/internal/fdstore"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/socket"
	"github.com/kvstored/kvstored/internal/test/logtest"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

var keptSpace = key.Space{Model: "kept", World: 1, DType: "none", ChunkTokens: 16, Method: "sha256"}

// keptConfig is that of a daemon without a disk whose memory is kept.
func keptConfig(t *testing.T) config.Config {
	cfg := smallConfig(t)
	cfg.CPU.Keep, cfg.Disk.Capacity = true, 0
	return cfg
}

// life is a daemon that runs in this process.
type life struct {
	d     *Daemon
	log   *logtest.Book
	stop  context.CancelFunc
	ended chan error
}

func live(t *testing.T, cfg config.Config) *life {
	t.Helper()
	l := &life{log: new(logtest.Book), ended: make(chan error, 1)}
	d, err := New(cfg, Options{Database: databasetest.Open, Log: zerolog.New(l.log)})
	if err != nil {
		t.Fatal(err)
	}
	l.d = d
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	go func() { l.ended <- d.Run(ctx) }()
	t.Cleanup(stop)
	return l
}

// end stops a daemon and wants a clean end.
func (l *life) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.await(t)
}

// await wants a clean end by itself.
func (l *life) await(t *testing.T) {
	t.Helper()
	select {
	case err := <-l.ended:
		if err != nil {
			t.Errorf("the end of a daemon: %v\n%s", err, l.log)
		}
	case <-time.After(time.Minute):
		t.Fatalf("a daemon does not end:\n%s", l.log)
	}
}

// prompt is the n-th, of chunks chunks.
func prompt(n, chunks int) []uint32 {
	tokens := make([]uint32, chunks*keptSpace.ChunkTokens)
	for i := range tokens {
		tokens[i] = uint32(n*1_000_003 + i)
	}
	return tokens
}

// bytesOf is the payload of chunk i of prompt n.
func bytesOf(n, i int) []byte {
	p := make([]byte, 20_000+1000*i)
	for j := range p {
		p[j] = byte(n + 31*i + j*7 + j>>8)
	}
	return p
}

func connect(t *testing.T, cfg *config.Config) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), cfg.Listen.Socket, client.Options{Space: &keptSpace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func storeChain(t *testing.T, c *client.Client, n, chunks int) {
	t.Helper()
	sizes := make([]uint32, chunks)
	for i := range sizes {
		sizes[i] = uint32(len(bytesOf(n, i)))
	}
	f, err := c.Reserve(t.Context(), client.Tokens(prompt(n, chunks)), client.ReserveOptions{Sizes: sizes, Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.Len() {
		f.Write(i, bytesOf(n, i))
	}
	if _, err := f.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// wants reads a prompt, of which all is to be in DRAM, right.
func wants(t *testing.T, c *client.Client, n, chunks int) {
	t.Helper()
	job, err := c.Prefetch(t.Context(), client.Tokens(prompt(n, chunks)), client.PrefetchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := job.Wait(t.Context(), client.All)
	if err != nil || int(st.Ready.Chunks) != chunks {
		t.Fatalf("prompt %d: %d of %d chunks, %v", n, st.Ready.Chunks, chunks, err)
	}
	for i := range chunks {
		want, buf := bytesOf(n, i), make([]byte, 1<<20)
		got, err := job.Copy(t.Context(), buf, i)
		if err != nil || string(buf[:got]) != string(want) {
			t.Errorf("prompt %d, chunk %d: %d bytes of %d, %v", n, i, got, len(want), err)
		}
	}
	if err := job.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// keepingUntil runs a keeper until ctx ends.
func keepingUntil(t *testing.T, ctx context.Context, cfg *config.Config) (ended chan error) {
	t.Helper()
	l, err := socket.Listen(cfg.KeeperSocket(), 0o600, "")
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() { ended <- (&fdstore.Server{Log: zerolog.Nop()}).Serve(ctx, l) }()
	return ended
}

// keeping runs a keeper for daemons with a configuration.
func keeping(t *testing.T, cfg *config.Config) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := keepingUntil(t, ctx, cfg)
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A keeper that is started again has the memory of the daemon that still runs.
func TestKeeperComesBack(t *testing.T) {
	cfg := keptConfig(t)
	ctx, stop := context.WithCancel(context.Background())
	first := keepingUntil(t, ctx, &cfg)
	d := live(t, cfg)
	c := connect(t, &cfg)
	storeChain(t, c, 1, 5)
	stop()
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(cfg.KeeperSocket()); err != nil {
		t.Fatal(err)
	}
	const given = "was given to its keeper"
	before := strings.Count(d.log.String(), given) // also to the first one again, while that was ending
	keeping(t, &cfg)
	for deadline := time.Now().Add(time.Minute); strings.Count(d.log.String(), given) == before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the new keeper has nothing\n%s", d.log)
		}
	}
	c.Close()
	d.end(t)
	d = live(t, cfg)
	wants(t, connect(t, &cfg), 1, 5)
	d.end(t)
}

// there is how many chunks of a prompt are there.
func there(t *testing.T, c *client.Client, n int) int {
	t.Helper()
	job, err := c.Prefetch(t.Context(), client.Tokens(prompt(n, 5)), client.PrefetchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := job.Wait(t.Context(), client.All)
	if err != nil {
		t.Fatal(err)
	}
	return int(st.Ready.Chunks)
}

// The next daemon has what the one before has left with the keeper. What cannot be used
// leaves DRAM empty, the log says why, and the daemon serves.
func TestKept(t *testing.T) {
	cfg := keptConfig(t)
	keeping(t, &cfg)
	first := live(t, cfg)
	c := connect(t, &cfg)
	storeChain(t, c, 1, 5)
	c.Close()
	first.end(t)

	again := live(t, cfg)
	c = connect(t, &cfg)
	wants(t, c, 1, 5)
	storeChain(t, c, 2, 5)
	c.Close()
	again.end(t)
	next := live(t, cfg)
	c = connect(t, &cfg)
	storeChain(t, c, 3, 5)
	c.Close()
	next.end(t)

	for i, change := range []func(*config.Config){
		func(*config.Config) {},
		func(c *config.Config) { c.CPU.Capacity *= 2 },
		func(c *config.Config) { c.CPU.Keep = false },
	} {
		other := cfg
		change(&other)
		d := live(t, other)
		c = connect(t, &other)
		have := 0
		for n := range 3 {
			have += there(t, c, n+1)
		}
		switch {
		case i == 0 && have != 15:
			t.Errorf("%d of 15 chunks are there", have)
		case i > 0 && have > 0:
			t.Errorf("change %d: %d chunks are there", i, have)
		case i == 1 && !strings.Contains(d.log.String(), "it is set aside"), i == 2 && !strings.Contains(d.log.String(), "would keep it"):
			t.Errorf("change %d: the log does not say why\n%s", i, d.log)
		}
		storeChain(t, c, 10+i, 3)
		wants(t, c, 10+i, 3)
		c.Close()
		d.end(t)
	}
	if _, err := os.Stat(cfg.KeeperSocket()); err != nil {
		t.Error(err)
	}
}

// Connects wait from the end of a daemon to the next one, at all its sockets; those that it
// does not use any more go.
func TestConnectsWait(t *testing.T) {
	cfg := keptConfig(t)
	cfg.Admin.Listen, cfg.Listen.RESP = "127.0.0.1:0", []string{cfg.Listen.Socket + ".resp"}
	keeping(t, &cfg)
	d := live(t, cfg)
	at := d.d.pages.Addr().String()
	storeChain(t, connect(t, &cfg), 1, 3)
	d.end(t)
	var waiting []net.Conn
	for _, addr := range [][2]string{{"unix", cfg.Listen.Socket}, {"unix", cfg.AdminSocket()}, {"unix", cfg.Listen.RESP[0]}, {"tcp", at}} {
		c, err := net.Dial(addr[0], addr[1])
		if err != nil {
			t.Fatalf("between two daemons: %v", err)
		}
		waiting = append(waiting, c)
	}
	asked := make(chan error, 1)
	go func() {
		c, err := client.Dial(t.Context(), cfg.Listen.Socket, client.Options{Space: &keptSpace})
		if err == nil {
			_, err = c.Lookup(t.Context(), client.Tokens(prompt(1, 3)), 0)
			c.Close()
		}
		asked <- err
	}()
	d = live(t, cfg)
	if err := <-asked; err != nil {
		t.Error(err)
	}
	if now := d.d.pages.Addr().String(); now != at {
		t.Errorf("metrics are at %s, and were at %s", now, at)
	}
	for _, c := range waiting[1:] { // Redis and HTTP
		text := "GET /v1/config HTTP/1.0\r\n\r\n"
		if c == waiting[2] {
			text = "*1\r\n$4\r\nPING\r\n"
		}
		if _, err := c.Write([]byte(text)); err != nil {
			t.Error(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Errorf("%v: %v", c.RemoteAddr(), err)
		}
		_ = c.Close()
	}
	_ = waiting[0].Close()
	d.end(t)

	resp := cfg.Listen.RESP[0]
	cfg.Listen.RESP = nil
	d = live(t, cfg)
	if _, err := os.Lstat(resp); !os.IsNotExist(err) {
		t.Errorf("a socket that is not used any more: %v", err)
	}
	d.end(t)
	if err := os.Remove(cfg.Listen.Socket); err != nil { // nobody would find what is kept
		t.Fatal(err)
	}
	d = live(t, cfg)
	wants(t, connect(t, &cfg), 1, 3)
	d.end(t)
}

// While a client of an earlier process may read what that has left, only free memory is
// filled; once it has come again, all is.
func TestGuard(t *testing.T) {
	cfg := keptConfig(t)
	keeping(t, &cfg)
	d := live(t, cfg)
	old := connect(t, &cfg)
	for n := range 30 {
		storeChain(t, old, n, 30) // several times DRAM
	}
	d.end(t)
	d = live(t, cfg)
	_, list, err := cpu.OpenManifest(manifestOf(t, d), shapeOf(&cfg))
	if err != nil || len(list.Clients) != 1 || list.Clients[0].LeaseAge != cfg.Lease.MaxAge {
		t.Fatalf("clients %v, %v", list.Clients, err)
	}
	before := d.d.cpu.Stats()
	chain := tiertest.Chain(7, 1)
	fill := tier.Fill{Record: tier.Record{Key: chain.Key(0), Size: 8 << 20}, Owner: ledger.Daemon, Class: ledger.IO, Drop: func(v tier.Victim) bool { v.Block.Release(); return false }}
	if _, _, err := d.d.cpu.Reserve(t.Context(), fill); !errors.Is(err, tier.ErrNoSpace) {
		t.Errorf("a fill that needs room: %v", err)
	}
	if n := d.d.cpu.Stats().Evictions; n != before.Evictions {
		t.Errorf("%d chunks were evicted", n)
	}
	again := connect(t, &cfg)
	d.says(t, "is used as any other")
	ref, _, err := d.d.cpu.Reserve(t.Context(), fill)
	if err != nil {
		t.Fatal(err)
	}
	d.d.cpu.Abort([]tier.Ref{ref})
	storeChain(t, again, 99, 30)
	wants(t, again, 99, 30)
	d.end(t)
}

// A hello that maps nothing is not that of a connection of the same process that did.
func TestGuardWaitsForMapped(t *testing.T) {
	cfg := keptConfig(t)
	keeping(t, &cfg)
	d := live(t, cfg)
	connect(t, &cfg)
	d.end(t)
	d = live(t, cfg)
	c, err := client.Dial(t.Context(), cfg.Listen.Socket, client.Options{Space: &keptSpace, Inline: true})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if n := d.d.guard.waits(); n != 1 {
		t.Errorf("after a hello that maps nothing the guard waits for %d clients, want 1", n)
	}
	connect(t, &cfg)
	d.says(t, "is used as any other")
	d.end(t)
}

// A clean stop while a client of an earlier process may still read holds nothing back: no
// block of a chunk that was deleted meanwhile counts as held. The next process still guards it.
func TestStopInGuard(t *testing.T) {
	cfg := keptConfig(t)
	keeping(t, &cfg)
	d := live(t, cfg)
	storeChain(t, connect(t, &cfg), 1, 5)
	d.end(t)
	d = live(t, cfg)
	_, r := d.d.from.left.Record(0)
	used := d.d.arena.Stats().UsedBytes
	if err := d.d.cpu.Delete(t.Context(), []key.Key{r.Key}); err != nil {
		t.Fatal(err)
	}
	d.end(t)
	if strings.Contains(d.log.String(), "still held") {
		t.Errorf("the log: %s", d.log)
	}
	d = live(t, cfg)
	if now := d.d.arena.Stats().UsedBytes; now != used || d.d.cpu.Has(r.Key) {
		t.Errorf("%d bytes are in use after the stop, and were %d", now, used)
	}
	d.end(t)
}

// manifestOf is a copy of the manifest of a daemon, which is not changed by its reader.
func manifestOf(t *testing.T, d *life) *os.File {
	t.Helper()
	st, err := d.d.manifest.File().Stat()
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, st.Size())
	if _, err := d.d.manifest.File().ReadAt(data, 0); err != nil {
		t.Fatal(err)
	}
	f, err := arena.NewMemory("manifest", st.Size())
	if err == nil {
		_, err = f.WriteAt(data, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// says waits until the log has a text.
func (l *life) says(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(l.log.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log does not say %q:\n%s", text, l.log)
		}
	}
}

// Clients that have ended are not waited for, and their connections' places are free.
func TestGuardDropsEnded(t *testing.T) {
	m, err := cpu.NewManifest(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	own, gone := cpu.ClientOf(uint32(os.Getpid())), cpu.ClientOf(1<<30) // more than any process has
	var slots [3]cpu.Slot
	for i, c := range []cpu.Client{gone, own, gone} {
		slots[i], _ = m.Join(c, 0)
	}
	left := &cpu.Left{Clients: slices.Clone(slots[:])}
	g := newGuard(m, &inheritance{memory: memory{arena: new(arena.Arena)}, left: left})
	if n := g.waits(); n != 1 || g.left[0] != slots[1] {
		t.Errorf("the guard waits for %d clients: %v", n, g.left)
	}
	if s, _ := m.Join(gone, 0); s != slots[0] {
		t.Errorf("the first free place is %v", s)
	}
	if n := g.waits(); n != 1 {
		t.Errorf("then it waits for %d", n)
	}
}

// A connection that outlives the process that made it is another's, which is not known: the
// next daemon does not take it for one that has ended.
func TestGuardDisowns(t *testing.T) {
	m, err := cpu.NewManifest(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	g := newGuard(m, nil)
	for _, pid := range []uint32{1 << 30, uint32(os.Getpid()), 1<<30 + 1} {
		s, _ := m.Join(cpu.ClientOf(pid), time.Hour)
		g.live[s] = true
		if pid == 1<<30+1 {
			g.end(s)
		}
	}
	g.disown()
	g.disown()
	d := &life{d: &Daemon{tiers: tiers{memory: memory{manifest: m}}}}
	next, list, err := cpu.OpenManifest(manifestOf(t, d), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if c := list.Clients; len(c) != 2 || c[0].PID != 0 || c[0].Ended() || c[0].LeaseAge != time.Hour || c[1].PID != uint32(os.Getpid()) {
		t.Errorf("clients %v", c)
	}
}

// A client that does not come again holds memory for lease.max_age, and no longer: the
// larger one, where that was another before.
func TestGuardEnds(t *testing.T) {
	guardEnds(t, time.Second, time.Minute)
	guardEnds(t, time.Hour, time.Hour)
}

// guardEnds is that of a client with leases of an age, where lease.max_age is a minute.
func guardEnds(t *testing.T, age, want time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		m, err := cpu.NewManifest(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		own := cpu.ClientOf(uint32(os.Getpid()))
		s, _ := m.Join(own, age)
		d := &Daemon{log: zerolog.Nop(), from: &inheritance{memory: memory{arena: new(arena.Arena)}, left: &cpu.Left{Clients: []cpu.Slot{s}}}}
		d.cfg.Lease.MaxAge = time.Minute
		g := newGuard(m, d.from)
		begun := time.Now()
		g.wait(t.Context(), d)
		if took := time.Since(begun); took != want {
			t.Errorf("it took %v, want %v", took, want)
		}
	})
}

// Each socket comes back where its file was removed, and the keeper has the new one; a file
// of another process stays, and the daemon is not ready.
func TestRemovedSockets(t *testing.T) {
	cfg := keptConfig(t)
	cfg.Listen.RESP = []string{cfg.Listen.Socket + ".resp"}
	keeping(t, &cfg)
	var log logtest.Book
	d, err := New(cfg, optionsOf(zerolog.New(&log)))
	if err != nil {
		t.Fatal(err)
	}
	w := watcher{d: d}
	paths := []string{cfg.Listen.Socket, cfg.AdminSocket(), cfg.Listen.RESP[0]}
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if !w.look() || w.look() {
		t.Error("the sockets are not bound again once")
	}
	if !keepMemory(d, false) {
		t.Error("nothing is kept")
	}
	if err := os.Remove(paths[1]); err != nil {
		t.Fatal(err)
	}
	foreign, err := socket.Bind(paths[1], 0o600, "")
	if err != nil {
		t.Fatal(err)
	}
	if again := w.look(); again || d.ready() == nil || !strings.Contains(d.ready().Error(), "remove it") {
		t.Errorf("beside a socket of another process: %v", d.ready())
	}
	_ = foreign.Close()
	if err := os.Remove(paths[1]); err != nil {
		t.Fatal(err)
	}
	if again := w.look(); !again || d.ready() != nil {
		t.Errorf("once that is gone: %v", d.ready())
	}
	keepMemory(d, false)
	d.Close()
	for _, path := range paths { // they are kept
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	live(t, cfg).end(t)
}

// Without a disk the tables of a policy that learns are in what is kept, after a clean stop.
func TestLearnedIsKept(t *testing.T) {
	cfg := keptConfig(t)
	cfg.CPU.Policy = "tenure"
	keeping(t, &cfg)
	d := live(t, cfg)
	storeChain(t, connect(t, &cfg), 1, 5)
	d.end(t)
	d = live(t, cfg)
	if left := d.d.from.left; !left.Stopped || left.Policy != "tenure" || len(left.Learned) == 0 {
		t.Errorf("stopped %t, %q, %d bytes", left.Stopped, left.Policy, len(left.Learned))
	}
	if strings.Contains(d.log.String(), "cannot be used") {
		t.Errorf("the log: %s", d.log)
	}
	d.end(t)
}

// A stop without the bucket says that the disk has what the bucket lacks.
func TestStopWithoutTheBucket(t *testing.T) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(name, value)
	}
	cfg := smallConfig(t)
	cfg.Remote.S3.Bucket, cfg.Remote.S3.Endpoint, cfg.Remote.S3.PathStyle = "bucket", "http://127.0.0.1:1", true // nobody is there
	d := live(t, cfg)
	c := connect(t, &cfg)
	storeChain(t, c, 1, 5)
	c.Close()
	d.end(t)
	if said := d.log.String(); !strings.Contains(said, "what is on disk is found again") || strings.Contains(said, "computed again") {
		t.Errorf("it says\n%s", said)
	}
}
