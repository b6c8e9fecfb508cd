package databasetest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"

	"github.com/kvstored/kvstored/internal/database"
)

// Open is database.Open without a process.
func Open(ctx context.Context, o database.Options) (*database.DB, error) {
	var pairs, its []net.Conn
	for range database.Pairs {
		a, b := net.Pipe()
		pairs, its = append(pairs, a), append(its, b)
	}
	h := new(here)
	words, say := io.Pipe()
	go h.serve(its, say)
	return database.Connect(ctx, o, h, pairs, words)
}

// here is the process of a database that has none.
type here struct {
	killed, ended atomic.Bool
	sync          func(*os.File) error // see hook
}

// open are the databases that are, by the folder of the list of tables that Badger syncs.
var open struct {
	sync.Mutex
	hooked bool
	dirs   map[string]*here
}

// hook has Badger ask the database in dir.
func (h *here) hook(dir string, sync func(*os.File) error) (err error) {
	open.Lock()
	defer open.Unlock()
	if !open.hooked {
		open.hooked, open.dirs = true, make(map[string]*here)
		err = database.Hook(func(f *os.File) error {
			open.Lock()
			h := open.dirs[filepath.Dir(f.Name())]
			open.Unlock()
			if h == nil { // a list of no database that is open
				return f.Sync()
			}
			return h.sync(f)
		})
	}
	h.sync, open.dirs[filepath.Clean(dir)] = sync, h
	return err
}

// unhook forgets a database that is closed.
func (h *here) unhook() {
	open.Lock()
	defer open.Unlock()
	maps.DeleteFunc(open.dirs, func(_ string, x *here) bool { return x == h })
}

func (h *here) Pid() int { return os.Getpid() }

// Kill need do no more: the pairs are closed next.
func (h *here) Kill() { h.killed.Store(true) }

// Wait is called when the words have ended, and so has serve.
func (h *here) Wait() string {
	switch {
	case h.ended.Load():
		return "exit status 1"
	case h.killed.Load():
		return "signal: killed"
	}
	return "exit status 0"
}

// serve ends with the pairs. A database that was not closed before is closed then, so
// that the next one can be opened.
func (h *here) serve(pairs []net.Conn, words *io.PipeWriter) {
	hangUp := func() {
		for _, c := range pairs {
			_ = c.Close()
		}
	}
	s := &database.Server{Words: words, Lost: func() {}, Hook: h.hook}
	s.Exit = func() {
		h.ended.Store(true)
		hangUp()
		runtime.Goexit()
	}
	s.Try = func(dir string) error {
		over, err := tryTables(dir)
		if over != nil {
			_, _ = fmt.Fprintln(words, "panic:", over)
			s.Exit()
		}
		return err
	}
	s.Gone = func() {
		if h.killed.Load() || h.ended.Load() {
			runtime.Goexit()
		}
	}
	defer func() { // also where the opening has ended the process
		hangUp()
		h.unhook()
		_ = words.Close()
	}()
	if s.Serve(pairs) != nil { // Badger did not open it
		h.ended.Store(true)
	}
}

// tryTables returns what Badger panics over in a table, or the first error. Badger opens
// each in a goroutine of its own, whose panic nothing can recover, and over several errors
// these race.
func tryTables(dir string) (over any, err error) {
	defer func() { over = recover() }()
	for id := range listed(dir) {
		data, err := os.ReadFile(table.NewFilename(id, dir))
		if err != nil {
			continue // Badger says so
		}
		t, err := table.OpenInMemoryTable(data, id, &table.Options{BlockSize: 4 << 10, ChkMode: options.OnTableAndBlockRead})
		if err == nil {
			err = t.VerifyChecksum()
		}
		if err != nil {
			return nil, fmt.Errorf("open table %d: %w", id, err)
		}
	}
	return nil, nil
}

// listed are the tables of a database. Badger reports a list that is damaged.
func listed(dir string) map[uint64]badger.TableManifest {
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if err != nil {
		return nil
	}
	defer f.Close() //nolint:errcheck // nothing was written
	m, _, _ := badger.ReplayManifestFile(f, 0, badger.Options{})
	return m.Tables
}
