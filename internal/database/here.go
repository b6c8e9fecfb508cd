package database

import (
	"context"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
)

// OpenHere is Open without a process: goroutines of this one serve the pairs. What
// would end the process (a page that cannot be read, much that Badger has against its
// files) ends the program. It is for tests that ask about something else; all of it
// works in a bubble of testing/synctest.
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
	s.gone = func() {
		if h.killed.Load() || h.ended.Load() {
			runtime.Goexit()
		}
	}
	err := s.serve(conns)
	hangUp()
	if err == nil {
		_ = s.close()
		s.watched.unhook()
	} else {
		h.ended.Store(true)
	}
	_ = words.Close()
}
