package daemon

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/fdstore"
	"github.com/kvstored/kvstored/internal/socket"
)

// names are the names of the files of a daemon's memory, in the order of kept.
var names = []string{keptArena, keptClients, keptManifest}

// lie answers daemons as a keeper that has these files.
func lie(t *testing.T, cfg *config.Config, names []string, files []*os.File) {
	t.Helper()
	l, err := socket.Listen(cfg.KeeperSocket(), 0o600, "")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	var accepted []*fdstore.Conn // of the goroutine that accepts, until that has ended
	ended := make(chan struct{})
	served.Go(func() {
		defer close(ended)
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			conn, err := fdstore.NewConn(c)
			if err == nil {
				accepted = append(accepted, conn)
				served.Go(func() { answerFalsely(conn, names, files) })
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
		for _, conn := range accepted {
			_ = conn.Close()
		}
		served.Wait()
	})
}

// answerFalsely is lie for one daemon.
func answerFalsely(conn *fdstore.Conn, names []string, files []*os.File) {
	defer conn.Close()
	for {
		m, list, err := conn.Next(0)
		if err != nil {
			return
		}
		socket.CloseFiles(list)
		if m.Step != fdstore.Take {
			names, files = nil, nil
		}
		if conn.Send(fdstore.Message{Step: fdstore.Taken, Names: names}, time.Minute, files...) != nil {
			return
		}
	}
}

// kept are the files of an arena of a configuration and an empty manifest of it.
func kept(t *testing.T, cfg *config.Config) []*os.File {
	t.Helper()
	a, err := arena.New(arenaOptions(cfg, arena.Touch))
	if err != nil {
		t.Fatal(err)
	}
	m, err := cpu.NewManifest(a.Stats().CapacityBytes)
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
		fd, err := unix.MemfdCreate("foreign", 0)
		f := os.NewFile(uintptr(fd), "foreign")
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
		"five descriptors with three names": func(f []*os.File) []*os.File { return append(f, f[0], f[1]) },
		"a manifest of a future version":    func(f []*os.File) []*os.File { return written(t, f, 8, 9) },
		"a manifest that is none":           func(f []*os.File) []*os.File { return written(t, f, 0, 0) },
		"a manifest with another sum":       func(f []*os.File) []*os.File { return written(t, f, 23, 255) },
		"a manifest with too many records":  func(f []*os.File) []*os.File { return written(t, f, 35, 255) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := keptConfig(t)
			files := change(kept(t, &cfg))
			lie(t, &cfg, names[:min(len(names), len(files))], files)
			d := live(t, cfg)
			c := connect(t, &cfg)
			storeChain(t, c, 1, 3)
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
