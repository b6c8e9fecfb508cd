package fdstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/socket"
)

const (
	// most is how many connections are served at a time.
	most = 8
	// leaveTimeout is the default of Server.Patience: the daemon before may be on its way
	// out.
	leaveTimeout = 2 * time.Second
)

// Server keeps the descriptors of one daemon. Its zero value has none.
type Server struct {
	Log zerolog.Logger
	// Patience is how long a daemon that starts waits for the end of the one before; 0 is
	// 2 s.
	Patience time.Duration

	mu struct {
		sync.Mutex
		files Files // none, or those of a daemon
		owner *Conn // of the daemon that has them, while it lasts
		left  base.Signal
	}
}

// Serve answers daemons until ctx ends, and then lets go of everything. The listener, of a
// Unix socket, is closed by it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer s.drop()
	places := make(chan struct{}, most)
	return socket.Serve(ctx, l, s.Log, func(net.Conn) socket.Handler {
		select {
		case places <- struct{}{}:
		default:
			s.Log.Warn().Int("connections", most).Msg("a connection more than are served; it is closed")
			return nil
		}
		return func(_ context.Context, c net.Conn) { // what a daemon sent before its end counts
			defer func() { <-places }()
			s.meet(ctx, c.(*net.UnixConn))
		}
	})
}

// drop closes the files kept.
func (s *Server) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.files) > 0 {
		s.Log.Warn().Msg("the keeper ends: DRAM goes with its daemon, at once where none runs")
	}
	s.mu.files.Close()
	s.mu.files = nil
}

// meet serves one connection until it ends.
func (s *Server) meet(ctx context.Context, uc *net.UnixConn) {
	conn, err := NewConn(uc)
	if err != nil {
		s.Log.Warn().Err(err).Msg("a process was refused")
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = uc.CloseRead() })
	defer stop()
	for err == nil {
		err = s.answer(conn)
	}
	s.leave(conn)
	if !errors.Is(err, ErrEnded) && ctx.Err() == nil {
		s.Log.Warn().Err(err).Msg("a connection ended")
		why := err.Error() // which may not reach it any more
		_ = conn.Send(Message{Step: Failed, Program: human.VersionText(), Why: why[:min(len(why), maxBytes/8)]}, time.Second)
	}
}

// answer serves one message. An error ends the connection.
func (s *Server) answer(conn *Conn) error {
	m, files, err := conn.Next(0)
	if err != nil {
		return err
	}
	switch {
	case m.Step == Take && len(files) == 0:
		return s.give(conn, m.Program)
	case m.Step == Keep:
		f, err := named(m.Names, files)
		if err != nil {
			return err
		}
		busy := !s.exchange(conn, &m, &f)
		f.Close()
		return conn.Send(Message{Step: Taken, Busy: busy}, timeout)
	}
	socket.CloseFiles(files)
	return fmt.Errorf("%q with %d descriptors: want %s with none, or %s", m.Step, len(files), Take, Keep)
}

// give answers Take. The descriptors sent are copies: a peer that does not read keeps
// no other call waiting, and Keep may close the others meanwhile.
func (s *Server) give(conn *Conn, program string) error {
	answer := Message{Step: Taken}
	files, err := s.lend(conn, program)
	if errors.Is(err, ErrBusy) {
		answer.Busy, err = true, nil
	}
	if err != nil {
		return err
	}
	defer files.Close()
	var list []*os.File
	answer.Names, list = files.parts()
	return conn.Send(answer, timeout, list...)
}

// lend has conn's daemon have the files, and returns copies of them. ErrBusy says that
// another one still has them after the patience.
func (s *Server) lend(conn *Conn, program string) (files Files, err error) {
	late := time.After(cmp.Or(s.Patience, leaveTimeout))
	s.mu.Lock()
	defer s.mu.Unlock()
	for waits := true; waits && s.busy(conn); {
		left := s.mu.left.Next()
		s.mu.Unlock()
		select {
		case <-left:
		case <-late:
			waits = false
		}
		s.mu.Lock()
	}
	if s.busy(conn) {
		return nil, ErrBusy
	}
	files = make(Files)
	for name, f := range s.mu.files {
		if files[name], err = duplicate(f); err != nil {
			delete(files, name)
			files.Close()
			return nil, err
		}
	}
	s.mu.owner = conn
	s.Log.Info().Str("program", program).Int("descriptors", len(files)).Msg("a daemon starts")
	return files, nil
}

// busy reports whether another daemon than that of conn has the files. The mutex is held.
func (s *Server) busy(conn *Conn) bool { return s.mu.owner != nil && s.mu.owner != conn }

// exchange has files kept in place of those that are, which it leaves in files. It is
// false where another daemon has these and still runs.
func (s *Server) exchange(conn *Conn, m *Message, files *Files) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy(conn) && !m.Over {
		return false
	}
	s.Log.Info().Str("program", m.Program).Int("descriptors", len(*files)).Msg("kept for a daemon")
	s.mu.files, *files, s.mu.owner = *files, s.mu.files, conn
	return true
}

// leave notes that a daemon has ended.
func (s *Server) leave(conn *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.owner == conn {
		s.mu.owner = nil
		s.mu.left.Wake()
		s.Log.Info().Msg("the daemon has ended; what it gave is kept for the next one")
	}
}

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
