package wire

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// MaxFiles is the largest number of descriptors that come with one frame. The
// protocol sends two; the rest is room to grow.
const MaxFiles = 8

// fileRights is the control message that carries descriptors of files.
func fileRights(files []*os.File) ([]byte, error) {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
		if fds[i] < 0 {
			return nil, fmt.Errorf("wire: send descriptor of %s: %w", f.Name(), os.ErrClosed)
		}
	}
	rights := syscall.UnixRights(fds...)
	runtime.KeepAlive(files)
	return rights, nil
}

// writeFiles sends p, as far as the socket takes it at once, with descriptors of the
// files beside its first byte.
func (s *socket) writeFiles(p []byte, files []*os.File) (n int, err error) {
	rights, err := fileRights(files)
	if err != nil {
		return 0, err
	}
	var failed error
	err = s.raw.Write(func(fd uintptr) bool {
		for failed = syscall.EINTR; failed == syscall.EINTR; {
			n, failed = unix.SendmsgN(int(fd), p, rights, nil, 0)
		}
		return failed != syscall.EAGAIN
	})
	if err == nil && failed != nil {
		err = os.NewSyscallError("sendmsg", failed)
	}
	return n, err
}

// readFiles reads bytes and the descriptors that came with them. They are
// closed on exec; the caller owns them, also beside an error.
func (s *socket) readFiles(p []byte) (int, []*os.File, error) {
	oob := make([]byte, syscall.CmsgSpace(4*MaxFiles))
	var n, oobn, flags int
	var failed error
	err := s.raw.Read(func(fd uintptr) bool {
		for failed = syscall.EINTR; failed == syscall.EINTR; {
			n, oobn, flags, _, failed = unix.Recvmsg(int(fd), p, oob, unix.MSG_CMSG_CLOEXEC)
		}
		return failed != syscall.EAGAIN
	})
	if err == nil && failed != nil {
		err = os.NewSyscallError("recvmsg", failed)
	}
	if err != nil {
		return 0, nil, err
	}
	files, err := parseFiles(oob[:oobn])
	switch {
	case err != nil:
	case flags&syscall.MSG_CTRUNC != 0:
		err = fmt.Errorf("%w: more than %d descriptors, or no room for them in this process: raise its limit on open files", ErrMalformed, MaxFiles)
	case n == 0:
		err = io.EOF
	}
	return n, files, err
}

func parseFiles(oob []byte) ([]*os.File, error) {
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: control message: %w", ErrMalformed, err)
	}
	var files []*os.File
	for i := range msgs {
		fds, err := syscall.ParseUnixRights(&msgs[i])
		if err != nil {
			continue // not descriptors: nothing of ours
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "kvstored"))
		}
	}
	return files, nil
}
