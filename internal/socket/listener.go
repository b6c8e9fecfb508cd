package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/base"
)

const (
	// LookEvery is how often Look is to be called.
	LookEvery = 2 * time.Second
	// sayEvery is how often a socket is named that connects do not come to.
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
	said   time.Time // when an error of Look was logged last
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
	if now := time.Now(); err != nil && (l.said.IsZero() || now.Sub(l.said) >= sayEvery) {
		l.said = now
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
