package daemon

import (
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/handover"
	"github.com/kvstored/kvstored/internal/manifest"
	"github.com/kvstored/kvstored/internal/socket"
)

// lie answers daemons as a keeper that has these files, and calls got, if any, with what it
// is to keep before it says that it has it.
func lie(t *testing.T, cfg *config.Config, files []*os.File, got func(m handover.Message, files []*os.File)) {
	t.Helper()
	l, err := socket.Listen(cfg.KeeperSocket(), 0o600, "")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	var accepted []*handover.Conn // of the goroutine that accepts, until that has ended
	ended := make(chan struct{})
	served.Go(func() {
		defer close(ended)
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			conn, err := handover.NewConn(c)
			if err == nil {
				accepted = append(accepted, conn)
				served.Go(func() { answerFalsely(conn, files, got) })
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
		for _, conn := range accepted { // a daemon that has handed over leaves its end to its process's
			_ = conn.Close()
		}
		served.Wait()
	})
}

// answerFalsely is lie for one daemon.
func answerFalsely(conn *handover.Conn, files []*os.File, got func(m handover.Message, files []*os.File)) {
	defer conn.Close()
	for {
		m, list, err := conn.Next(0)
		if err != nil {
			return
		}
		if got != nil && m.Step == handover.Keep {
			got(m, list)
		}
		handover.CloseAll(list)
		if m.Step != handover.Take {
			files = nil
		}
		if conn.Send(handover.Message{Step: handover.Taken}, time.Minute, files...) != nil {
			return
		}
	}
}

// A successor has its manifest kept before its predecessor makes its own void: a kill of
// both in between would leave none.
func TestSuccessorIsKeptFirst(t *testing.T) {
	cfg := handedConfig(t)
	cfg.Disk.Capacity = 0
	given := make(chan *os.File, 1) // manifest of the predecessor
	came, proceed := make(chan struct{}), make(chan struct{})
	lie(t, &cfg, nil, func(m handover.Message, files []*os.File) {
		if !m.Over {
			f, _ := handover.Copy(files[2])
			given <- f
			return
		}
		close(came)
		<-proceed
	})
	at := live(t, cfg, false)
	first := <-given
	defer first.Close()
	store(t, connect(t, &cfg), 1, 3)
	next := live(t, cfg, true)
	<-came
	for range 20 { // as long as it would take the predecessor
		if l, err := manifest.Open(first, shapeOf(&cfg).bytes); err != nil || l.Len() != 3 {
			t.Errorf("the manifest of the predecessor: %v", err)
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	close(proceed)
	at.await(t)
	if _, err := manifest.Open(first, shapeOf(&cfg).bytes); err == nil {
		t.Error("the manifest of the predecessor is not void")
	}
	wants(t, connect(t, &cfg), 1, 3)
	next.end(t)
}

// kept are the files of an arena of a configuration and an empty manifest of it.
func kept(t *testing.T, cfg *config.Config) []*os.File {
	t.Helper()
	a, err := arena.New(arenaOptions(cfg))
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.New(a.Stats().CapacityBytes)
	if err != nil {
		t.Fatal(err)
	}
	files, err := a.Files()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = m.Close()
		_ = a.Close()
	})
	return []*os.File{files.Whole, files.Clients, m.File()}
}

// Whatever a keeper gives a daemon, that serves, and the log says what was wrong. Memory
// whose size could change is not mapped: its user could end the daemon.
func TestForeignMemory(t *testing.T) {
	memory := func(bytes int64) *os.File {
		f, err := handover.NewMemory("foreign", 0)
		if err == nil {
			err = f.Truncate(bytes)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	opened := func(path string) *os.File {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	at := func(i int, f *os.File) func([]*os.File) []*os.File {
		return func(files []*os.File) []*os.File {
			files[i] = f
			return files
		}
	}
	pipe, _, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(files []*os.File) []*os.File{
		"a manifest that is a pipe":         at(2, pipe),
		"a manifest that is a device":       at(2, opened("/dev/zero")),
		"a manifest that could shrink":      at(2, memory(1<<20)),
		"a manifest that is the arena":      func(f []*os.File) []*os.File { return []*os.File{f[0], f[1], f[0]} },
		"an arena that could shrink":        at(0, memory(16<<20)),
		"an arena that is a pipe":           at(0, pipe),
		"clients that have another file":    at(1, memory(16<<20)),
		"clients that could write":          func(f []*os.File) []*os.File { return []*os.File{f[0], f[0], f[2]} },
		"only readable":                     func(f []*os.File) []*os.File { return []*os.File{f[1], f[1], f[2]} },
		"in another order":                  func(f []*os.File) []*os.File { return []*os.File{f[2], f[1], f[0]} },
		"two descriptors":                   func(f []*os.File) []*os.File { return f[:2] },
		"five descriptors":                  func(f []*os.File) []*os.File { return append(f, f[0], f[1]) },
		"a manifest of a future version":    func(f []*os.File) []*os.File { return written(t, f, 8, 9) },
		"a manifest that is void":           func(f []*os.File) []*os.File { return written(t, f, 0, 0) },
		"a manifest with too many records":  func(f []*os.File) []*os.File { return written(t, f, 27, 255) },
		"a manifest of an arena of no size": func(f []*os.File) []*os.File { return written(t, f, 23, 255) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := handedConfig(t)
			cfg.Disk.Capacity = 0
			lie(t, &cfg, change(kept(t, &cfg)), nil)
			d := live(t, cfg, false)
			c := connect(t, &cfg)
			store(t, c, 1, 3)
			wants(t, c, 1, 3)
			c.Close()
			d.end(t)
			if log := d.log.String(); strings.Count(log, "cannot be used") != 1 {
				t.Errorf("the log: %s", log)
			}
		})
	}
}

// written is a manifest with another byte.
func written(t *testing.T, files []*os.File, at int64, to byte) []*os.File {
	t.Helper()
	if _, err := files[2].WriteAt([]byte{to}, at); err != nil {
		t.Fatal(err)
	}
	return files
}

// What a client was filling in the arena itself stays out of use where a successor has
// failed, and is counted: the client may go on writing, into no other chunk.
func TestDirectFillsOutliveAFailedSuccessor(t *testing.T) {
	cfg := handedConfig(t)
	cfg.Arena.Puts, cfg.Disk.Capacity = config.PutsDirect, 0
	at := live(t, cfg, false)
	c, err := client.Dial(t.Context(), cfg.Listen.Socket, client.Options{Space: &handSpace, Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	store(t, c, 1, 4)
	fill, err := c.Reserve(t.Context(), client.Tokens(prompt(2, 3)), client.ReserveOptions{Sizes: []uint32{40_000, 50_000, 60_000}})
	if err != nil || fill.Len() != 3 {
		t.Fatalf("%d slots, error %v", fill.Len(), err)
	}
	scribble := func() {
		for i := range fill.Len() {
			for j := range fill.Bytes(i) {
				fill.Bytes(i)[j] = 0xee
			}
		}
	}
	come(t, &cfg, handover.Yours).close()
	at.servesAgain(t, 1)
	for round := range 3 { // the same daemon, then two successors
		scribble()
		again := connect(t, &cfg)
		for n := range 100 {
			store(t, again, 10+100*round+n, 8) // all of DRAM, more than once
			scribble()
			if n%10 == 0 {
				wants(t, again, 10+100*round+n, 8)
			}
		}
		raw, err := again.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var st struct {
			Arena ArenaStats `json:"arena"`
		}
		if err := json.Unmarshal(raw, &st); err != nil {
			t.Fatal(err)
		}
		if want := int64(40_960 + 53_248 + 61_440); st.Arena.ExcludedBytes != want {
			t.Errorf("round %d: %d bytes are out of use, want %d", round, st.Arena.ExcludedBytes, want)
		}
		again.Close()
		next := live(t, cfg, true)
		at.await(t)
		at = next
	}
	at.end(t)
}
