package database

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
)

// OpenHere is Open without a process: goroutines of this one serve the pairs. It is for
// tests that ask about something else, and works in a bubble of testing/synctest. A page
// that cannot be read ends the program, and so may what Badger has against its files. A
// damaged table, which is all that does so in practice, is found before Badger opens it,
// and ends the database alone.
func OpenHere(ctx context.Context, o Options) (*DB, error) {
	d := newDB(o.Log)
	var its []*conn
	for range 1 + readers {
		a, b := net.Pipe()
		d.conns, its = append(d.conns, newConn(a)), append(its, newConn(b))
	}
	d.use()
	h := new(here)
	d.process = h
	words, say := io.Pipe()
	go h.serve(its, say)
	go func() {
		last := d.listen(words) // until serve has returned
		d.end(&Death{How: h.how(), Words: last})
	}()
	return d.opened(ctx, o)
}

// here is the process of a database that has none.
type here struct {
	killed, ended atomic.Bool
}

func (h *here) pid() int { return os.Getpid() }

// kill needs do no more: the pairs are closed next.
func (h *here) kill() { h.killed.Store(true) }

// how the process would have ended.
func (h *here) how() string {
	switch {
	case h.ended.Load():
		return "exit status 1"
	case h.killed.Load():
		return "signal: killed"
	}
	return "exit status 0"
}

// tryTables returns what Badger panics over in a table, or the first error. Badger opens
// each in a goroutine of its own, whose panic nothing can recover, and over several errors
// these race.
func tryTables(dir string) (over any, err error) {
	defer func() { over = recover() }()
	listed, _ := (&compactions{dir: dir}).list() // Badger says what is wrong with the list
	for id := range listed {
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

// serve ends with the pairs. A database that was not closed before is closed then, so
// that the next one can be opened.
func (h *here) serve(conns []*conn, words *io.PipeWriter) {
	hangUp := func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	s := &server{words: words, lost: func() {}}
	s.exit = func() {
		h.ended.Store(true)
		hangUp()
		runtime.Goexit()
	}
	s.try = func(dir string) error {
		over, err := tryTables(dir)
		if over != nil {
			s.end(fmt.Sprint("panic: ", over))
		}
		return err
	}
	s.gone = func() {
		if h.killed.Load() || h.ended.Load() {
			runtime.Goexit()
		}
	}
	defer func() { // also where the opening has ended the process
		hangUp()
		s.watched.unhook()
		_ = words.Close()
	}()
	err := s.serve(conns)
	if s.db == nil { // Badger did not open it
		h.ended.Store(err != nil)
		return
	}
	hangUp()
	_ = s.close()
}
