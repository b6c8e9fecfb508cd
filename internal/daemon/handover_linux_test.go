package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/checkpoint"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/handover"
	"github.com/kvstored/kvstored/internal/logtest"
	"github.com/kvstored/kvstored/key"
)

var handSpace = key.Space{Model: "handed", World: 1, DType: "none", ChunkTokens: 16, Method: "sha256"}

// handedConfig is that of a daemon that can hand over.
func handedConfig(t *testing.T) config.Config {
	cfg := smallConfig(t)
	cfg.Upgrade.HandOver = true
	return cfg
}

// life is a daemon that runs in this process.
type life struct {
	d     *Daemon
	log   *logtest.Book
	stop  context.CancelFunc
	ended chan error
}

func live(t *testing.T, cfg config.Config, takeOver bool) *life {
	t.Helper()
	l := &life{log: new(logtest.Book), ended: make(chan error, 1)}
	d, err := New(cfg, Options{Database: database.OpenHere, Log: zerolog.New(l.log), TakeOver: takeOver})
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
	tokens := make([]uint32, chunks*handSpace.ChunkTokens)
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
	c, err := client.Dial(t.Context(), cfg.Listen.Socket, client.Options{Space: &handSpace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func store(t *testing.T, c *client.Client, n, chunks int) {
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

// A successor has all of DRAM, with and without a disk; with direct puts too.
func TestHandOver(t *testing.T) {
	for name, change := range map[string]func(*config.Config){
		"staged": func(*config.Config) {},
		"direct": func(c *config.Config) { c.Arena.Puts = config.PutsDirect },
		"DRAM":   func(c *config.Config) { c.Disk.Capacity = 0 },
		"learns": func(c *config.Config) { c.CPU.Policy = "tenure" },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := handedConfig(t)
			change(&cfg)
			at := live(t, cfg, false)
			c := connect(t, &cfg)
			for n := range 5 {
				store(t, c, n, 4)
			}
			epoch := c.Epoch()
			for round := range 3 {
				next := live(t, cfg, true)
				at.await(t)
				if !strings.Contains(at.log.String(), "handed over") {
					t.Errorf("the log of a predecessor: %s", at.log)
				}
				at = next
				if _, err := c.Stats(t.Context()); !errors.Is(err, client.ErrDisconnected) {
					t.Errorf("a client of the predecessor: %v", err)
				}
				c = connect(t, &cfg)
				if c.Epoch() == epoch {
					t.Error("the epoch is that of the predecessor")
				}
				epoch = c.Epoch()
				if n := at.d.cpu.Stats().Entries; int(n) != 20+4*round {
					t.Errorf("%d chunks in DRAM", n)
				}
				for n := range 5 + round {
					wants(t, c, n, 4)
				}
				store(t, c, 5+round, 4)
			}
			at.end(t)
			if _, err := os.Lstat(cfg.Listen.Socket); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the socket after the end: %v", err)
			}
		})
	}
}

// fake is a successor that goes through the steps up to one, and fails then.
type fake struct {
	conn *handover.Conn
	all  []*os.File
}

func (f *fake) close() {
	f.conn.Close()
	handover.CloseAll(f.all)
}

// come is a successor that has come to a step.
func come(t *testing.T, cfg *config.Config, to handover.Step) *fake {
	t.Helper()
	conn, err := handover.Dial(cfg.UpgradeSocket(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{conn: conn}
	t.Cleanup(f.close)
	for _, step := range []handover.Step{handover.Hello, handover.Offer, handover.Ready, handover.Yours, handover.Prepared, handover.Go} {
		switch step {
		case handover.Offer, handover.Yours, handover.Go:
			_, files, err := conn.Receive(step, time.Minute)
			if err != nil && strings.Contains(err.Error(), "another process is taking over") {
				return come(t, cfg, to) // the one before is not forgotten yet
			}
			if err != nil {
				t.Fatal(err)
			}
			f.all = append(f.all, files...)
		default:
			if err := conn.Send(handover.Message{Step: step}, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		if step == to {
			return f
		}
	}
	t.Fatal("no such step", to)
	return nil
}

// At any step at which a successor fails, the daemon goes on with all of DRAM. Prepared is
// not among them: the daemon may have said go by the time it hears of the failure, and goes
// on then once the other process has ended, which here is the test. TestSuccessorDies is
// about that.
func TestSuccessorFails(t *testing.T) {
	steps := []handover.Step{handover.Hello, handover.Offer, handover.Ready, handover.Yours}
	ways := map[string]func(t *testing.T, f *fake){
		"leaves": func(_ *testing.T, f *fake) { f.close() },
		"says why": func(_ *testing.T, f *fake) {
			f.conn.Fail("fake", errors.New("no reason at all"))
			f.close()
		},
		"lies": func(_ *testing.T, f *fake) {
			_ = f.conn.Send(handover.Message{Step: handover.Serving}, time.Minute)
		},
		"hangs": func(*testing.T, *fake) {},
	}
	cfg := handedConfig(t)
	at := live(t, cfg, false)
	c := connect(t, &cfg)
	for n := range 3 {
		store(t, c, n, 4)
	}
	failed := 0
	for _, step := range steps {
		for name, fail := range ways {
			if name == "hangs" && (step == handover.Ready || step == handover.Yours) {
				continue // TestSuccessorHangs
			}
			t.Run(string(step)+" "+name, func(t *testing.T) {
				f := come(t, &cfg, step)
				fail(t, f)
				if step == handover.Hello || step == handover.Offer {
					wants(t, c, 0, 4) // the same connection: it has noticed nothing
					f.close()
					return
				}
				failed++
				at.servesAgain(t, failed)
				c = connect(t, &cfg)
				for n := range 3 {
					wants(t, c, n, 4)
				}
			})
		}
	}
	next := live(t, cfg, true)
	at.await(t)
	wants(t, connect(t, &cfg), 2, 4)
	next.end(t)
}

// A successor that has all and hangs is given up after upgrade.timeout.
func TestSuccessorHangs(t *testing.T) {
	cfg := handedConfig(t)
	cfg.Upgrade.Timeout = time.Second
	at := live(t, cfg, false)
	store(t, connect(t, &cfg), 1, 4)
	come(t, &cfg, handover.Yours)
	at.servesAgain(t, 1)
	wants(t, connect(t, &cfg), 1, 4)
	at.end(t)
}

// servesAgain returns when a daemon has gone on after so many successors.
func (l *life) servesAgain(t *testing.T, successors int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); strings.Count(l.log.String(), "serving again") < successors; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not go on:\n%s", l.log)
		}
	}
}

// There is one successor at a time; garbage and other configurations change nothing.
func TestSuccessorsAreRefused(t *testing.T) {
	cfg := handedConfig(t)
	at := live(t, cfg, false)
	c := connect(t, &cfg)
	store(t, c, 1, 2)
	first := come(t, &cfg, handover.Offer)
	second, err := handover.Dial(cfg.UpgradeSocket(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := second.Send(handover.Message{Step: handover.Hello}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, _, err := second.Receive(handover.Offer, time.Minute); err == nil || !strings.Contains(err.Error(), "another process is taking over") {
		t.Errorf("a second successor: %v", err)
	}
	first.close()
	for _, garbage := range []string{"", "x", "\x00\x00\x00\x00", "\xff\xff\xff\xffx", "\x02\x00\x00\x00{}", "GET / HTTP/1.1\r\n\r\n"} {
		raw, err := net.Dial("unix", cfg.UpgradeSocket())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = raw.Write([]byte(garbage))
		raw.Close()
	}
	for what, change := range map[string]func(*config.Config){
		"cpu.capacity":      func(c *config.Config) { c.CPU.Capacity *= 2 },
		"arena.puts":        func(c *config.Config) { c.Arena.Puts = config.PutsDirect },
		"upgrade.hand_over": func(c *config.Config) { c.Upgrade.HandOver = false },
	} {
		other := cfg
		change(&other)
		_, err := New(other, Options{Database: database.OpenHere, Log: zerolog.Nop(), TakeOver: true})
		for err != nil && strings.Contains(err.Error(), "another process is taking over") { // the one before is not forgotten yet
			_, err = New(other, Options{Database: database.OpenHere, Log: zerolog.Nop(), TakeOver: true})
		}
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("a successor with another %s: %v", what, err)
		}
	}
	st, err := os.Lstat(cfg.UpgradeSocket())
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", st, err)
	}
	wants(t, c, 1, 2)
	at.end(t)
	// Where none runs the start is as ever.
	alone := live(t, cfg, true)
	connect(t, &cfg)
	alone.end(t)
}

// A directory that is damaged, cut short, of another version or of another arena is set
// aside: DRAM begins empty, with one line that says why, and everything works.
func TestDirectoryIsSetAside(t *testing.T) {
	for want, change := range map[string]func(data []byte) []byte{
		"damaged":                func(p []byte) []byte { p[len(p)/2] ^= 1; return p },
		"bytes, and its header":  func(p []byte) []byte { return p[:len(p)-1] },
		"fewer than a header":    func([]byte) []byte { return nil },
		"of another version":     func(p []byte) []byte { p[8]++; return p },
		"does not begin":         func(p []byte) []byte { p[0]++; return p },
		"it is of an arena of":   nil,
		"is no sealed file in m": func(p []byte) []byte { return p },
	} {
		t.Run(want, func(t *testing.T) {
			cfg := handedConfig(t)
			cfg.Disk.Capacity = 0
			a, err := arena.New(arenaOptions(&cfg))
			if err != nil {
				t.Fatal(err)
			}
			in := &inheritance{arena: a}
			if in.directory, err = handover.NewMemory("test", 0); err != nil {
				t.Fatal(err)
			}
			bytes := a.Stats().CapacityBytes
			if change == nil {
				bytes *= 2
				change = func(p []byte) []byte { return p }
			}
			data := directoryOf(t, bytes)
			if _, err := in.directory.WriteAt(change(data), 0); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(want, "is no sealed") {
				if err := handover.Seal(in.directory); err != nil {
					t.Fatal(err)
				}
			}
			var log logtest.Book
			d, err := newDaemon(cfg, optionsOf(zerolog.New(&log)), in, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- d.Run(ctx) }()
			c := connect(t, &cfg)
			store(t, c, 1, 3)
			wants(t, c, 1, 3)
			c.Close()
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if text := log.String(); strings.Count(text, "set aside") != 1 || !strings.Contains(text, want) {
				t.Errorf("the log: %s", text)
			}
		})
	}
}

// directoryOf is a directory of some entries in an arena of so many bytes.
func directoryOf(t *testing.T, bytes int64) []byte {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "directory")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := checkpoint.NewWriter(f, bytes, "lru")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		w.Add(&checkpoint.Record{Key: key.Key{Hash: key.Hash{byte(i + 1)}}, Offset: int64(i) << 12, Size: 4096})
	}
	if err := w.Close(nil, nil); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return data
}
