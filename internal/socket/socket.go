package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// probeTimeout is how long a live daemon has to take a connection.
	probeTimeout = time.Second
	// lockTimeout is how long another daemon has to finish its turn with the
	// socket: a probe, and some moments.
	lockTimeout = 5 * time.Second
	lockPause   = 10 * time.Millisecond
)

// Listen makes the socket at path with the given mode and, unless empty,
// group. A socket on which a daemon answers is never taken over; one on which
// none answers is replaced. Unlisten removes it again.
//
// Probing, removing and making the socket are not one step. So daemons that
// start or stop at the same moment take turns, by a lock on path.lock, which
// goes with the turn.
func Listen(path string, mode fs.FileMode, group string) (*net.UnixListener, error) {
	var l *net.UnixListener
	err := inTurn(path, func(temp string) (err error) {
		// Bound under another name and moved into place, so that no client
		// connects before mode and group are right.
		if l, err = bind(temp, mode, group); err != nil {
			return err
		}
		if err = os.Rename(temp, path); err != nil {
			_ = l.Close()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// CanListen tells why Listen would fail. A socket or file at path stays as it
// is, and a daemon that starts meanwhile waits for its turn.
func CanListen(path string, mode fs.FileMode, group string) error {
	return inTurn(path, func(temp string) error {
		l, err := bind(temp, mode, group)
		if err != nil {
			return err
		}
		return l.Close()
	})
}

// inTurn has do run with a free name beside path, which is free itself or a
// stale socket's, while no other daemon makes or removes a file there.
func inTurn(path string, do func(temp string) error) error {
	err := func() error {
		unlock, err := lockSocket(path)
		if err != nil {
			return err
		}
		defer unlock()
		if err := vacant(path); err != nil {
			return err
		}
		temp := path + "~"
		removeSocket(temp)
		defer removeSocket(temp)
		return do(temp)
	}()
	if err != nil {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	return nil
}

// removeSocket removes the socket at path, such as a killed daemon leaves behind.
// Any other file there is not the daemon's, and stays.
func removeSocket(path string) {
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() == fs.ModeSocket {
		_ = os.Remove(path)
	}
}

// bind makes a socket with a mode and a group.
func bind(temp string, mode fs.FileMode, group string) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if errors.Is(err, syscall.EINVAL) {
		return nil, fmt.Errorf("%w: the path may be too long: choose one of at most 106 bytes", err)
	}
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := give(temp, mode, group); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// lockSocket waits for the turn to make or remove the socket at path.
func lockSocket(path string) (unlock func(), err error) {
	path += ".lock"
	for end := time.Now().Add(lockTimeout); ; time.Sleep(lockPause) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
		if errors.Is(err, syscall.ELOOP) {
			return nil, fmt.Errorf("lock %s: it is a symbolic link, which is not followed; remove it, or choose a folder that other users cannot write to", path)
		}
		if err != nil {
			var perr *fs.PathError // names the lock: the socket is what the caller asked for
			if errors.As(err, &perr) {
				err = perr.Err
			}
			switch dir := filepath.Dir(path); {
			case errors.Is(err, fs.ErrPermission):
				return nil, fmt.Errorf("%w: choose a path in a folder that user %d may write to, which %s is not", err, os.Geteuid(), dir)
			case errors.Is(err, fs.ErrNotExist):
				return nil, fmt.Errorf("%w: create the folder %s, or choose another path", err, dir)
			}
			return nil, fmt.Errorf("%w: choose another path", err)
		}
		if owner, ok := foreign(f); ok {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: it belongs to user %d, who could keep the lock for ever; remove it, or choose a folder that other users cannot write to", path, owner)
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && isAt(f, path) {
			return func() {
				_ = os.Remove(path)
				_ = f.Close() // which unlocks
			}, nil
		}
		_ = f.Close()
		if err == nil {
			err = syscall.EWOULDBLOCK // whoever had the turn has just given it up
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(end) {
			return nil, fmt.Errorf("lock %s, which another daemon that starts or stops may hold: %w", path, err)
		}
	}
}

// foreign is the owner of a file that is neither this user's nor root's.
func foreign(f *os.File) (uid uint32, ok bool) {
	st, err := f.Stat()
	if err != nil {
		return 0, false // locking it will fail, too
	}
	uid = owner(st)
	return uid, uid != 0 && int(uid) != os.Geteuid()
}

// owner is the user of a file.
func owner(st os.FileInfo) uint32 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Uid
	}
	return 0
}

// Inode is the number of a file, which the next file may have once that is removed.
func Inode(st os.FileInfo) uint64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Ino
	}
	return 0
}

// isAt reports whether f is the file at path. A lock that the daemon before has
// removed at the end of its turn is none.
func isAt(f *os.File, path string) bool {
	own, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(path)
	return err == nil && os.SameFile(own, now)
}

// give sets the mode of a socket and, unless empty, its group.
func give(path string, mode fs.FileMode, group string) error {
	if err := os.Chmod(path, mode); err != nil || group == "" {
		return err
	}
	gid, err := groupID(group)
	if err != nil {
		return err
	}
	if err := os.Lchown(path, -1, gid); err != nil {
		return fmt.Errorf("give the socket to group %s: %w; run as root or as a member, or leave its group empty", group, err)
	}
	return nil
}

// groupID is the number of a group given as name or number.
func groupID(group string) (int, error) {
	if gid, err := strconv.Atoi(group); err == nil {
		return gid, nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return 0, fmt.Errorf("group: %w; create it, or name another", err)
	}
	return strconv.Atoi(g.Gid)
}

// vacant is an error unless there is nothing at path, or a socket on which no
// daemon answers.
func vacant(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() != fs.ModeSocket {
		return errors.New("there is a file that is not a socket; move it away, or choose another path")
	}
	c, err := net.DialTimeout("unix", path, probeTimeout)
	if err == nil {
		_ = c.Close()
		return errors.New("another process is serving this socket; stop it first, or choose another path")
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("there is a socket of user %d, which this user may not connect to, to see whether a daemon serves it; remove it if none does, or choose another path", owner(st))
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot tell whether a daemon serves this socket: %v", err) //nolint:errorlint // not one that cannot be reached
	}
	return nil
}

// Unlisten removes the socket at path if it is still own, as os.Lstat told
// after Listen, and not one that another daemon has put there meanwhile.
func Unlisten(path string, own os.FileInfo) error {
	unlock, err := lockSocket(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // with its folder
	}
	if err != nil {
		return fmt.Errorf("remove socket %s: %w", path, err)
	}
	defer unlock()
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !isOwn(own, now) {
		return nil
	}
	return os.Remove(path)
}

// isOwn reports whether two are of one file. The time too: the number of a removed file is
// soon used again.
func isOwn(own, now fs.FileInfo) bool {
	return own != nil && os.SameFile(own, now) && own.ModTime().Equal(now.ModTime())
}

// Rights is the control message by which descriptors of files go along; nil of none. It
// asks each file for its number without Fd, which would have the sockets that it is a copy
// of block. The files must stay until it is sent.
func Rights(files []*os.File) ([]byte, error) {
	fds := make([]int, len(files))
	for i, f := range files {
		raw, err := f.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds[i] = int(fd) })
		}
		if err != nil {
			return nil, fmt.Errorf("send descriptor of %s: %w", f.Name(), err)
		}
	}
	if len(fds) == 0 {
		return nil, nil
	}
	return syscall.UnixRights(fds...), nil
}

// Duplicate is another descriptor of the same open file, which is closed on exec.
func Duplicate(raw syscall.RawConn) (fd int, err error) {
	failed := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(failed, err)
}

// CloseFiles closes files that are not needed. Nothing was written to them.
func CloseFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// Files are those whose descriptors came with a control message, all with one name. The
// caller owns them, also beside an error.
func Files(control []byte, name string) (files []*os.File, err error) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		fds, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			continue // not descriptors: nothing of ours
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), name))
		}
	}
	return files, nil
}

// PeerOf is the user at the other end of a connection of a Unix socket, as the kernel
// noted it when the connection was made, or of one within the process that knows it.
func PeerOf(conn net.Conn) (uid uint32, err error) {
	if known, ok := conn.(interface{ PeerUID() uint32 }); ok {
		return known.PeerUID(), nil
	}
	cred, err := credentials(conn)
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}

// PeerPID is the process there; 0 where that is not known, or has no number for this one.
func PeerPID(conn net.Conn) uint32 {
	cred, err := credentials(conn)
	if err != nil {
		return 0
	}
	return uint32(max(0, cred.Pid))
}

func credentials(conn net.Conn) (cred *unix.Ucred, err error) {
	local, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("peer credentials: a connection of %T is none of the system's", conn)
	}
	raw, err := local.SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(failed, err); err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	return cred, nil
}
