package wire

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// link is what carries the bytes of a Conn: a socket, or Local.
type link interface {
	// read reads into p. Without block it returns ErrWouldBlock rather
	// than sleep.
	read(p []byte, block bool) (int, error)
	// write sends what is taken at once, perhaps nothing.
	write(p []byte) (int, error)
	// readFiles and writeFiles move bytes, and files with the first of them.
	readFiles(p []byte) (int, []*os.File, error)
	writeFiles(p []byte, files []*os.File) (int, error)
	shut()
}

// Local is a net.Conn whose other end is in this process, as package pipe has it. Files
// are handed over with the first byte of a write; their receiver owns descriptors of its
// own.
type Local interface {
	TryRead(p []byte) (int, error)  // EAGAIN: nothing is there
	TryWrite(p []byte) (int, error) // what there is room for, perhaps nothing
	ReadFiles(p []byte) (int, []*os.File, error)
	WriteFiles(p []byte, files []*os.File) (int, error)
	Shut() // ends both directions
}

func newLink(nc net.Conn) (link, error) {
	if l, ok := nc.(Local); ok {
		return local{nc, l}, nil
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("a connection of %T is none of the system's", nc)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	return newSocket(raw), nil
}

// local is a link within the process. It never polls.
type local struct {
	nc net.Conn
	Local
}

func (l local) read(p []byte, block bool) (n int, err error) {
	if block {
		n, err = l.nc.Read(p)
	} else {
		n, err = l.TryRead(p)
	}
	if err == syscall.EAGAIN {
		err = ErrWouldBlock
	}
	return n, err
}

func (l local) write(p []byte) (int, error) { return l.TryWrite(p) }

func (l local) readFiles(p []byte) (int, []*os.File, error) { return l.ReadFiles(p) }

func (l local) writeFiles(p []byte, files []*os.File) (int, error) { return l.WriteFiles(p, files) }

func (l local) shut() { l.Shut() }
