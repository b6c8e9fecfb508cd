package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/base"
)

const (
	// LookEvery is how often Look is to be called.
	LookEvery = 2 * time.Second
	// sayEvery is how often a socket is named that connects do not come to, and a shortage.
	sayEvery = time.Minute
)

// Listener is a socket at a path that is bound again where its file was removed. It is safe
// for concurrent use.
type Listener struct {
	path  string
	mode  fs.FileMode
	group string

	mu     sync.Mutex
	now    *net.UnixListener
	own    fs.FileInfo // of the file at path
	closed bool
	said   base.Quiet[int] // errors of Look
}

// Bind is Listen of a socket that can be bound again.
func Bind(path string, mode fs.FileMode, group string) (*Listener, error) {
	l := &Listener{path: path, mode: mode, group: group}
	return l, l.bind()
}

// Resume is Bind of a socket that is there, with the file own at path.
func Resume(now *net.UnixListener, own fs.FileInfo, path string, mode fs.FileMode, group string) (*Listener, error) {
	return &Listener{path: path, mode: mode, group: group, now: now, own: own}, give(path, mode, group)
}

// bind makes the socket. The mutex is held, or nothing else knows of l.
func (l *Listener) bind() error {
	now, err := Listen(l.path, l.mode, l.group)
	if err != nil {
		return err
	}
	own, err := os.Lstat(l.path)
	if err != nil {
		return errors.Join(err, now.Close())
	}
	l.now, l.own = now, own
	return nil
}

// Look binds the socket again where its file is gone, and reports whether it has. An error
// says why connects do not come here: another file is at the path, which stays as it is, or
// binding fails. The log says either, an error once a minute.
func (l *Listener) Look(log *zerolog.Logger) (again bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if again, err = l.look(); again {
		log.Warn().Str("socket", l.path).Msg("its file was removed: it is bound again")
	}
	if err == nil {
		return again, nil
	}
	if _, tell := l.said.Add(time.Now(), sayEvery, base.Increment); tell {
		log.Error().Err(err).Str("socket", l.path).Msg("not ready: connects do not come to this process")
	}
	return again, err
}

// Watch looks until ctx ends.
func (l *Listener) Watch(ctx context.Context, log *zerolog.Logger) {
	for base.Sleep(ctx, LookEvery) == nil {
		_, _ = l.Look(log) // which the log has
	}
}

// look is Look without a word. The mutex is held.
func (l *Listener) look() (again bool, err error) {
	if l.closed {
		return false, nil
	}
	st, err := os.Lstat(l.path)
	switch {
	case err == nil && isOwn(l.own, st):
		return false, nil
	case err == nil:
		return false, fmt.Errorf("at %s is another file than the socket that this process has made there: remove it, and the socket comes back, or end the process that listens there", l.path)
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	before := l.now
	if err := l.bind(); err != nil {
		return false, err
	}
	_ = before.Close() // nothing finds it any more
	return true, nil
}

// current is the socket as it is now.
func (l *Listener) current() *net.UnixListener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		now := l.current()
		conn, err := now.AcceptUnix()
		if err == nil {
			return conn, nil
		}
		if now == l.current() {
			return nil, err
		}
	}
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.current().Addr() }

// File is another descriptor of the socket.
func (l *Listener) File() (*os.File, error) { return l.current().File() }

// Own is the file of the socket.
func (l *Listener) Own() fs.FileInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.own
}

// Close implements net.Listener. The file stays: see Unlisten.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.now.Close()
}

// pause is how long accepting rests when the process has no descriptor or
// memory left for one more connection.
const pause = 50 * time.Millisecond

// Work that would go on for long without a wait rests for breath each breathAfter steps:
// the runtime looks for connections elsewhere when a processor of it has nothing
// to do, or after 10 ms.
const (
	breath      = 100 * time.Microsecond
	breathAfter = 8   // refused connections
	breathLooks = 256 // looks at connections, see departures
)

// Handler serves a connection. It does not close it.
type Handler func(context.Context, net.Conn)

// Serve runs the handler that admit has for each connection of l, which it closes in
// the end, in a goroutine, until ctx ends or accepting fails for good. Then it ends the
// contexts that handlers were given, and returns when every handler has. The context of
// one connection also ends, with ErrDeparted as its cause, within a moment of the
// client's end; the cause of a stop is context.Canceled.
//
// A connection that admit has no handler for it has told why. The next is accepted when
// admit returns, so it must not wait. The handler runs in any case, also when ctx has
// ended, and may have another net.Conn than admit.
func Serve(ctx context.Context, l net.Listener, log zerolog.Logger, admit func(net.Conn) Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { _ = l.Close() })
	var connections sync.WaitGroup
	departures := newDepartures()
	connections.Go(func() { departures.run(ctx) })
	refused := 0 // one after the other
	err := loop(ctx, l, log, func(conn net.Conn) {
		handler := admit(conn)
		if handler == nil {
			_ = conn.Close() // nothing is to be sent any more
			if refused++; refused%breathAfter == 0 {
				time.Sleep(breath)
			}
			return
		}
		refused = 0
		connections.Go(func() { serve(ctx, conn, departures, handler) })
	})
	cancel()
	connections.Wait()
	_ = l.Close() // again, perhaps: it is closed when Serve returns
	return err
}

// serve serves a connection, which it closes.
func serve(ctx context.Context, conn net.Conn, departures *departures, handle Handler) {
	defer func() { _ = conn.Close() }()
	ctx, gone := context.WithCancelCause(ctx)
	defer gone(nil)
	defer departures.attend(conn, gone)()
	handle(ctx, conn)
}

func loop(ctx context.Context, l net.Listener, log zerolog.Logger, start func(net.Conn)) error {
	var shortages base.Quiet[int]
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			start(conn)
		case ctx.Err() != nil, errors.Is(err, net.ErrClosed):
			return nil
		case isShortage(err):
			if n, tell := shortages.Add(time.Now(), sayEvery, base.Increment); tell {
				log.Warn().Err(err).Stringer("address", l.Addr()).Int("times", n).Msg("clients wait: no room for their connections; raise the limit on open files")
			}
			if base.Sleep(ctx, pause) != nil {
				return nil
			}
		default:
			return fmt.Errorf("accept on %v: %w", l.Addr(), err)
		}
	}
}

// isShortage reports whether accepting failed for want of something that comes
// back when others let go.
func isShortage(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}, func(e error) bool {
		return errors.Is(err, e)
	})
}
