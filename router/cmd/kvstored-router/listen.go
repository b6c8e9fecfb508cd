package main

import (
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/socket"
)

// listen takes the path of a socket or host:port, for the setting that names it. The
// listener removes its socket when it is closed.
func listen(what, addr string, mode os.FileMode, log zerolog.Logger) (net.Listener, error) {
	l, err := bind(addr, mode)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if !strings.HasPrefix(addr, "/") {
		addr = l.Addr().String() // with the port that the kernel chose for 0
	}
	log.Info().Str("address", addr).Str("for", what).Msg("listening")
	return l, nil
}

func bind(addr string, mode os.FileMode) (net.Listener, error) {
	if !strings.HasPrefix(addr, "/") {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("%w; choose another address", err)
		}
		return l, nil
	}
	l, err := socket.Listen(addr, mode, "")
	if err != nil {
		return nil, err
	}
	own, err := os.Lstat(addr)
	if err != nil {
		return nil, err
	}
	return &unix{l, addr, own}, nil
}

// unix is a listener that removes its own socket.
type unix struct {
	*net.UnixListener
	path string
	own  os.FileInfo
}

// Close implements net.Listener.
func (u *unix) Close() error {
	err := u.UnixListener.Close()
	if gone := socket.Unlisten(u.path, u.own); err == nil {
		err = gone
	}
	return err
}
