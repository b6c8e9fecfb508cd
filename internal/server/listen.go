package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"time"
)

// probeTimeout is how long a live daemon has to take a connection.
const probeTimeout = time.Second

// Listen makes the socket at path with the given mode and, unless empty,
// group. A socket on which a daemon answers is never taken over; one that
// nobody serves is replaced. The socket is removed when the listener closes.
func Listen(path string, mode fs.FileMode, group string) (*net.UnixListener, error) {
	if err := clearStale(path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	// Bound under another name and moved into place, so that nobody connects
	// before mode and group are right.
	temp := fmt.Sprintf("%s.%d", path, os.Getpid())
	_ = os.Remove(temp)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w; create its folder, or choose another path in listen.socket", path, err)
	}
	l.SetUnlinkOnClose(false)
	if err := place(temp, path, mode, group); err != nil {
		_ = l.Close()
		_ = os.Remove(temp)
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

func place(temp, path string, mode fs.FileMode, group string) error {
	if err := os.Chmod(temp, mode); err != nil {
		return err
	}
	if group != "" {
		gid, err := groupID(group)
		if err != nil {
			return err
		}
		if err := os.Chown(temp, -1, gid); err != nil {
			return fmt.Errorf("give the socket to group %s: %w; run as root or as a member, or leave listen.group empty", group, err)
		}
	}
	return os.Rename(temp, path)
}

func groupID(group string) (int, error) {
	if gid, err := strconv.Atoi(group); err == nil {
		return gid, nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return 0, fmt.Errorf("listen.group: %w", err)
	}
	return strconv.Atoi(g.Gid)
}

// clearStale removes a socket that nobody serves, and nothing else.
func clearStale(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() != fs.ModeSocket {
		return errors.New("there is a file that is not a socket; move it away, or choose another path in listen.socket")
	}
	c, err := net.DialTimeout("unix", path, probeTimeout)
	if err == nil {
		_ = c.Close()
		return errors.New("another daemon is serving this socket; stop it first, or choose another path in listen.socket")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot tell whether a daemon serves this socket: %w", err)
	}
	return os.Remove(path)
}

// Unlisten removes the socket of l at path, unless another daemon has put its
// own there meanwhile.
func Unlisten(path string, own os.FileInfo) error {
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if own != nil && !os.SameFile(own, now) {
		return nil
	}
	return os.Remove(path)
}
