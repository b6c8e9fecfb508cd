package keep

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/internal/socket"
)

const (
	// maxBytes is the largest message.
	maxBytes = 32 << 10
	// MaxFiles is how many descriptors go with one.
	MaxFiles = 64
)

// Conn is one end of the connection of a daemon and its keeper.
type Conn struct {
	c *net.UnixConn
}

// dial connects to the process that listens at path, which must be of this user or of
// root: its files are believed.
func dial(path string, timeout time.Duration) (*Conn, error) {
	c, err := net.DialTimeout("unix", path, timeout)
	if err != nil {
		return nil, err
	}
	return NewConn(c.(*net.UnixConn))
}

// NewConn takes over a connection, whose other end must be of this user or of root. It
// closes it where it fails.
func NewConn(c *net.UnixConn) (*Conn, error) {
	uid, err := socket.PeerOf(c)
	if err == nil && uid != 0 && int(uid) != os.Geteuid() {
		err = fmt.Errorf("user %d is at the other end; only root and user %d may keep memory or have it kept", uid, os.Geteuid())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("keeper: %w", err), c.Close())
	}
	return &Conn{c}, nil
}

// Send sends a message with descriptors, which stay the caller's. It fails rather than
// wait longer than timeout.
func (c *Conn) Send(m Message, timeout time.Duration, files ...*os.File) error {
	m.Version = Version
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(text) > maxBytes || len(files) > MaxFiles {
		return fmt.Errorf("keeper: %s: %d bytes and %d descriptors are more than %d and %d", m.Step, len(text), len(files), maxBytes, MaxFiles)
	}
	rights, err := socket.Rights(files)
	if err != nil {
		return err
	}
	if err := c.c.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return fmt.Errorf("keeper: %s: %w", m.Step, err)
	}
	frame := append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)
	if _, _, err := c.c.WriteMsgUnix(frame, rights, nil); err != nil {
		return fmt.Errorf("keeper: %s: %w", m.Step, err)
	}
	runtime.KeepAlive(files)
	return nil
}

// duplicate is another descriptor of the same open file.
func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	var fd int
	if err == nil {
		fd, err = socket.Duplicate(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("copy the descriptor of %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// ErrEnded is the other end's end, without a word.
var ErrEnded = errors.New("the other process has ended")

// await waits for a step at most for timeout, and returns it with its descriptors,
// which are the caller's to close. Any other message is an error; one that says failed
// is what that says.
func (c *Conn) await(want Step, timeout time.Duration) (m Message, files []*os.File, err error) {
	m, files, err = c.Next(timeout)
	switch {
	case err != nil:
		err = fmt.Errorf("waiting for %s: %w", want, err)
	case m.Step == Failed:
		err = fmt.Errorf("keeper: the other process (%s) says: %s", m.Program, m.Why)
	case m.Step != want:
		err = fmt.Errorf("keeper: the other process says %q, and %s was to come", m.Step, want)
	default:
		return m, files, nil
	}
	socket.CloseFiles(files)
	return m, nil, err
}

// Next is Receive of any step. It waits without an end where timeout is 0.
func (c *Conn) Next(timeout time.Duration) (m Message, files []*os.File, err error) {
	m, files, err = c.receive(timeout)
	switch {
	case err != nil:
		err = fmt.Errorf("keeper: %w", err)
	case m.Version != Version:
		err = fmt.Errorf("keeper: the other process speaks version %d, and this one %d: start the keeper of this version", m.Version, Version)
	default:
		return m, files, nil
	}
	socket.CloseFiles(files)
	return m, nil, err
}

func (c *Conn) receive(timeout time.Duration) (m Message, files []*os.File, err error) {
	deadline := time.Time{}
	if timeout > 0 {
		deadline = time.Now().Add(timeout)
	}
	if err := c.c.SetReadDeadline(deadline); err != nil {
		return m, nil, err
	}
	var size [4]byte
	rights := make([]byte, syscall.CmsgSpace(4*MaxFiles))
	n, control, flags, _, err := c.c.ReadMsgUnix(size[:], rights) // descriptors come with the first byte
	if errors.Is(err, io.EOF) || err == nil && n == 0 {
		err = ErrEnded
	}
	if err != nil {
		return m, nil, err
	}
	if files, err = socket.Files(rights[:control], "kept"); err != nil {
		return m, files, err
	}
	if flags&syscall.MSG_CTRUNC != 0 {
		return m, files, fmt.Errorf("a message of more than %d descriptors", MaxFiles)
	}
	if _, err = io.ReadFull(c.c, size[n:]); err != nil {
		return m, files, err
	}
	length := binary.LittleEndian.Uint32(size[:])
	if length > maxBytes {
		return m, files, fmt.Errorf("a message of %d bytes, and %d are the most", length, maxBytes)
	}
	text := make([]byte, length)
	if _, err = io.ReadFull(c.c, text); err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, files, err
}

// awaitEnd returns when the other end has gone, or ctx has ended. Nothing is to come
// meanwhile.
func (c *Conn) awaitEnd(ctx context.Context) {
	_ = c.c.SetReadDeadline(time.Time{}) // what fails here fails the read
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.c.SetReadDeadline(time.Unix(1, 0))
		close(done)
	})
	_, _ = c.c.Read(make([]byte, 1)) // ends with the connection, or the deadline
	if !stop() {
		<-done // or it would end a later read
	}
}

// Fail tells the other end why it ends here. That may not reach it any more.
func (c *Conn) Fail(program string, why error) {
	text := why.Error()
	_ = c.Send(Message{Step: Failed, Program: program, Why: text[:min(len(text), maxBytes/8)]}, time.Second)
}

// Close ends the connection.
func (c *Conn) Close() error { return c.c.Close() }

// Version is that of the messages. A daemon and a keeper with different ones cannot work
// together.
const Version = 2

// Step names a message.
type Step string

// The messages.
const (
	Take   Step = "take"   // what is kept
	Keep   Step = "keep"   // what comes along, or nothing, in place of what is kept
	Taken  Step = "taken"  // the answer to both
	Failed Step = "failed" // in the place of any: it ends here
)

// Message is one step. A field that the step does not have is empty.
type Message struct {
	Step    Step   `json:"step"`
	Version int    `json:"version"`
	Program string `json:"program,omitempty"` // of take and keep: the version, for people
	Why     string `json:"why,omitempty"`     // of failed, for people

	Names []string `json:"names,omitempty"` // of keep and taken: of the descriptors with it

	// Of keep: the daemon has another connection, which does not answer. Of taken: another
	// daemon has the files, and nothing was done.
	Over bool `json:"over,omitempty"`
	Busy bool `json:"busy,omitempty"`
}
