package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/socket"
)

// endpoint is a listener, and for a Unix socket its path and file.
type endpoint struct {
	net.Listener
	addr      string   // as the configuration has it
	path      string   // the same, of a Unix socket, whose Listener is a socket.Listener
	file      *os.File // that a keeper has; nil: none
	inherited bool     // from a keeper
}

// close ends the use of a listener. A socket that is kept goes on: connects wait.
func (e *endpoint) close(kept bool) error {
	err := e.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	if e.file != nil {
		err = errors.Join(err, e.file.Close())
	}
	if e.path != "" && !kept && !e.inherited {
		err = errors.Join(err, socket.Unlisten(e.path, e.Listener.(*socket.Listener).Own()))
	}
	return err
}

// look binds a socket again whose file was removed, and reports whether it has.
func (e *endpoint) look(log *zerolog.Logger) (again bool, err error) {
	l, ok := e.Listener.(*socket.Listener)
	if !ok {
		return false, nil
	}
	if again, err = l.Look(log); again {
		if e.file != nil {
			_ = e.file.Close() // a keeper has the one before
		}
		e.file, e.inherited = nil, false
	}
	return again, err
}

func (e *endpoint) String() string {
	if e.path != "" {
		return e.path
	}
	return e.Addr().String()
}

// isSocket tells a socket's path from host:port.
func isSocket(addr string) bool { return strings.HasPrefix(addr, "/") }

// listenTCP takes host:port, for the key that names it.
func listenTCP(key, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		var op *net.OpError // says once more what is listened on
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("%s: listen on %s: %w; choose another address", key, addr, err)
	}
	return l, nil
}

// readPassword is what a file names as the password: its first line. Without a
// file there is none.
func readPassword(path string) (string, error) {
	return config.ReadSecret("listen.resp_password_file", path)
}
