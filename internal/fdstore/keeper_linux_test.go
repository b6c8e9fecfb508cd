package fdstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/test/logtest"
)

// filesFor are files in memory that tell their name and number.
func filesFor(t *testing.T, n int) Files {
	t.Helper()
	f := Files{}
	for _, name := range []string{"arena", "manifest", "/run/a:1#2"} {
		file, err := arena.NewMemory(name, 64)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(fmt.Appendf(nil, "%s.%d", name, n), 0); err != nil {
			t.Fatal(err)
		}
		f[name] = file
	}
	t.Cleanup(f.Close)
	return f
}

// wantFiles fails unless f are the files of a number, or none for 0.
func wantFiles(t *testing.T, f Files, err error, n int) {
	t.Helper()
	if err != nil || n == 0 && len(f) > 0 || n > 0 && len(f) != 3 {
		t.Fatalf("files %v, error %v; want those of %d", f, err, n)
	}
	for name, file := range f {
		text := make([]byte, 64)
		if _, err := file.ReadAt(text, 0); err != nil || string(bytes.TrimRight(text, "\x00")) != fmt.Sprintf("%s.%d", name, n) {
			t.Errorf("file %s is %q, error %v; want that of %d", name, text, err, n)
		}
	}
}

// newServer runs a keeper and returns its path.
func newServer(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "keep")
	if err != nil {
		t.Fatal(err)
	}
	path := dir + "/keep"
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	log := new(logtest.Book)
	s := &Server{Log: zerolog.New(log), Patience: time.Millisecond}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		s.mu.Lock()
		had := len(s.mu.files) > 0
		s.mu.Unlock()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if said := strings.Contains(log.String(), "the keeper ends"); said != had {
			t.Errorf("it had files: %t; it says that these go: %t", had, said)
		}
		if s.mu.files != nil {
			t.Error("an ended keeper still has files")
		}
		_ = os.RemoveAll(dir)
	})
	return path
}

func find(t *testing.T, path string) Keeper {
	t.Helper()
	k, err := Find(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

// What a daemon has given is the next one's, once the first has ended and not before; one
// that has another connection has them at once.
func TestServer(t *testing.T) {
	path := newServer(t)
	first := find(t, path)
	f, err := first.Take()
	wantFiles(t, f, err, 0)
	for n := 1; n < 3; n++ { // the second in place of the first
		if err := first.Keep(filesFor(t, n), false); err != nil {
			t.Fatal(err)
		}
	}
	other := find(t, path)
	if f, err := other.Take(); !errors.Is(err, ErrBusy) {
		t.Fatalf("beside the daemon that has them: %v, error %v", f, err)
	}
	for what, err := range map[string]error{"keep": other.Keep(filesFor(t, 9), false), "nothing": other.Keep(nil, false)} {
		if !errors.Is(err, ErrBusy) {
			t.Fatalf("%s beside the daemon that has them: error %v", what, err)
		}
	}
	f, err = first.Take()
	wantFiles(t, f, err, 2)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := takeWhenLeft(t, path, 2)
	third := find(t, path)
	if err := third.Keep(filesFor(t, 3), true); err != nil { // in place of a connection that hangs
		t.Fatal(err)
	}
	if _, err := second.Take(); err == nil {
		t.Error("a connection is given what another has")
	}
	_ = third.Close()
	fourth := takeWhenLeft(t, path, 3)
	if err := fourth.Keep(nil, false); err != nil {
		t.Fatal(err)
	}
	f, err = fourth.Take()
	wantFiles(t, f, err, 0)
}

// takeWhenLeft takes the files of a number, which the keeper gives once it has seen that
// the daemon before has ended.
func takeWhenLeft(t *testing.T, path string, n int) Keeper {
	t.Helper()
	k := find(t, path)
	f, err := k.Take()
	for errors.Is(err, ErrBusy) {
		f, err = k.Take()
	}
	wantFiles(t, f, err, n)
	return k
}

// A daemon that starts waits for the end of the one before, and no longer than the
// patience.
func TestEndIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Log: zerolog.Nop()}
		first, second := new(Conn), new(Conn)
		if _, err := s.lend(first, "first"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := s.lend(second, "second"); !errors.Is(err, ErrBusy) || time.Since(start) != leaveTimeout {
			t.Errorf("beside a daemon that stays: %v after %v", err, time.Since(start))
		}
		start = time.Now()
		time.AfterFunc(leaveTimeout/2, func() { s.leave(first) })
		if _, err := s.lend(second, "second"); err != nil || time.Since(start) != leaveTimeout/2 {
			t.Errorf("behind a daemon that ends: %v after %v", err, time.Since(start))
		}
	})
}

// Nonsense ends the connection that says it, with a reason, and no other.
func TestServerRefuses(t *testing.T) {
	path := newServer(t)
	good := find(t, path)
	if err := good.Keep(filesFor(t, 1), false); err != nil {
		t.Fatal(err)
	}
	two := []*os.File{filesFor(t, 2)["arena"], filesFor(t, 2)["manifest"]}
	for want, send := range map[string]func(*Conn) error{
		`"taken" with 0 descriptors`: func(c *Conn) error { return c.Send(Message{Step: Taken}, time.Minute) },
		"2 descriptors with 0 names": func(c *Conn) error {
			return c.Send(Message{Step: Keep}, time.Minute, two...)
		},
		"2 descriptors with 2 names": func(c *Conn) error {
			return c.Send(Message{Step: Keep, Names: []string{"a", "a"}}, time.Minute, two...)
		},
		`"take" with 2 descriptors`: func(c *Conn) error {
			return c.Send(Message{Step: Take}, time.Minute, two...)
		},
	} {
		c, err := dial(path, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := send(c); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.await(Taken, time.Minute); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
		_ = c.Close()
	}
	raw, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Read(make([]byte, 1)); err != nil {
		t.Errorf("garbage is not answered: %v", err)
	}
	_ = raw.Close()
	f, err := good.Take()
	wantFiles(t, f, err, 1)
}

// A peer that does not read its answers keeps no other waiting.
func TestDeafPeer(t *testing.T) {
	path := newServer(t)
	deaf, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	text := `{"step":"take","version":2}`
	ask := append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)
	for err == nil { // until the server waits for room to answer, and reads no more
		_ = deaf.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		_, err = deaf.Write(ask)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	k := find(t, path).(*client)
	k.timeout = timeout - time.Second // sooner than the deaf one is given up
	if err := k.Keep(filesFor(t, 1), true); err != nil {
		t.Error(err)
	}
	f, err := k.Take()
	wantFiles(t, f, err, 1)
}

// A keeper that does not answer, or answers with nonsense, costs its timeout once.
func TestBadKeeper(t *testing.T) {
	for name, answer := range map[string]string{"silent": "", "nonsense": "\x02\x00\x00\x00{}", "a long message": "\xff\xff\xff\xff"} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "keep")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			l, err := net.Listen("unix", dir+"/keep")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			k := find(t, dir+"/keep").(*client)
			k.timeout = 10 * time.Millisecond
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Write([]byte(answer)); err != nil {
				t.Fatal(err)
			}
			if f, err := k.Take(); err == nil {
				t.Fatalf("taken: %v", f)
			}
			k.timeout = time.Hour
			if err := k.Keep(nil, false); !errors.Is(err, errSilent) {
				t.Errorf("the second message: %v", err)
			}
			if !k.Await(t.Context()) {
				t.Error("it counts as ended")
			}
		})
	}
}

// A keeper lets go of what it had for each that it gets, however often.
func TestManyKept(t *testing.T) {
	k := find(t, newServer(t))
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	f := filesFor(t, 1)
	if err := k.Keep(f, false); err != nil {
		t.Fatal(err)
	}
	before := open()
	for range 500 {
		if err := k.Keep(f, false); err != nil {
			t.Fatal(err)
		}
	}
	if n := open(); n > before+8 { // others of this process come and go
		t.Errorf("%d descriptors, %d before", n, before)
	}
}

// Beside a service manager a keeper of another user, or one that is none, is passed over.
func TestManagerBesideAForeignKeeper(t *testing.T) {
	s := newStore(t)
	t.Setenv("NOTIFY_SOCKET", s.conn.LocalAddr().String())
	if k, err := Find(t.TempDir()); err != nil || k.Name() != (&manager{}).Name() { // a folder: nothing listens there
		t.Errorf("%v, error %v", k, err)
	}
}

// Without a keeper and a service manager that is said.
func TestFindNone(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if _, err := Find(t.TempDir() + "/none"); !errors.Is(err, ErrNone) {
		t.Errorf("error %v", err)
	}
}

// store is the descriptor store of a service manager, as sd_notify(3) and
// sd_pid_notify_with_fds(3) describe it.
type store struct {
	conn  *net.UnixConn
	names []string
	files []*os.File
}

func newStore(t *testing.T) *store {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "@kvstored-test-" + strconv.Itoa(os.Getpid()), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &store{conn: conn}
}

// read takes up all messages sent so far.
func (s *store) read(t *testing.T) {
	t.Helper()
	raw, err := s.conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for {
		text, rights := make([]byte, 4096), make([]byte, 4096)
		var n, rn int
		var none error // EAGAIN: a message is there once it was sent
		if err := raw.Control(func(fd uintptr) {
			n, rn, _, _, none = unix.Recvmsg(int(fd), text, rights, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		}); err != nil {
			t.Fatal(err)
		}
		if errors.Is(none, unix.EINTR) {
			continue
		}
		if none != nil {
			return
		}
		fields := map[string]string{}
		for line := range strings.SplitSeq(string(text[:n]), "\n") {
			name, value, _ := strings.Cut(line, "=")
			fields[name] = value
		}
		switch name := fields["FDNAME"]; {
		case fields["FDSTORE"] == "1":
			parts, err := syscall.ParseSocketControlMessage(rights[:rn])
			if err != nil {
				t.Fatal(err)
			}
			fds, err := syscall.ParseUnixRights(&parts[0])
			if err != nil || len(fds) != 1 {
				t.Fatalf("%d descriptors, error %v", len(fds), err)
			}
			if slices.ContainsFunc(s.files, func(f *os.File) bool { return same(t, int(f.Fd()), fds[0]) }) {
				_ = syscall.Close(fds[0]) // as systemd does
				continue
			}
			s.names, s.files = append(s.names, name), append(s.files, os.NewFile(uintptr(fds[0]), name))
		case fields["FDSTOREREMOVE"] == "1":
			for i, have := range s.names {
				if have == name {
					_ = s.files[i].Close()
					s.names, s.files = append(s.names[:i:i], s.names[i+1:]...), append(s.files[:i:i], s.files[i+1:]...)
					break
				}
			}
		}
	}
}

// same reports whether two descriptors are of one file that was opened once, going by what
// these tests open.
func same(t *testing.T, a, b int) bool {
	t.Helper()
	var sa, sb unix.Stat_t
	if err := errors.Join(unix.Fstat(a, &sa), unix.Fstat(b, &sb)); err != nil {
		t.Fatal(err)
	}
	return sa.Ino == sb.Ino && sa.Dev == sb.Dev
}

// start is the environment of the next process, and what that finds.
func (s *store) start(t *testing.T, pid int) *manager {
	t.Helper()
	const first = 300 // in place of 3, which this process uses
	for i, f := range s.files {
		if err := unix.Dup3(int(f.Fd()), first+i, 0); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{
		"NOTIFY_SOCKET": s.conn.LocalAddr().String(), "LISTEN_PID": strconv.Itoa(pid),
		"LISTEN_FDS": strconv.Itoa(len(s.files)), "LISTEN_FDNAMES": strings.Join(s.names, ":"),
	}
	return managerOf(func(name string) string { return env[name] }, first)
}

// A daemon finds in the store the files that the one before has stored last; those that it
// goes on with are not stored again, and the others leave.
func TestManager(t *testing.T) {
	s := newStore(t)
	m := s.start(t, os.Getpid())
	f, err := m.Take()
	wantFiles(t, f, err, 0)
	if err := m.Keep(filesFor(t, 1), false); err != nil {
		t.Fatal(err)
	}
	s.read(t)

	m = s.start(t, os.Getpid()) // goes on with the memory, and listens elsewhere
	f, err = m.Take()
	wantFiles(t, f, err, 1)
	next := maps.Clone(f)
	next["b"], next[strings.Repeat("x", maxName)] = filesFor(t, 2)["arena"], filesFor(t, 3)["arena"] // the longer is not kept
	delete(next, "/run/a:1#2")
	had := slices.Clone(s.files)
	if err := m.Keep(next, false); err != nil {
		t.Fatal(err)
	}
	s.read(t)
	slices.Sort(s.names)
	if want := []string{"kvstored-arena", "kvstored-b", "kvstored-manifest"}; !slices.Equal(s.names, want) {
		t.Fatalf("the store has %v", s.names)
	}
	for _, f := range s.files {
		if f.Name() != "kvstored-b" && !slices.Contains(had, f) {
			t.Errorf("%s was stored again", f.Name())
		}
	}
	f.Close()

	m = s.start(t, os.Getpid()) // begins anew
	if f, err = m.Take(); err != nil || len(f) != 3 {
		t.Fatalf("files %v, error %v", f, err)
	}
	if err := m.Keep(filesFor(t, 4), false); err != nil {
		t.Fatal(err)
	}
	f.Close()
	s.read(t)
	m = s.start(t, os.Getpid())
	f, err = m.Take()
	wantFiles(t, f, err, 4)
	if err := m.Keep(nil, false); err != nil {
		t.Fatal(err)
	}
	s.read(t)
	if len(s.names) > 0 {
		t.Errorf("the store has %v", s.names)
	}

	if m := s.start(t, 1); len(m.had) > 0 {
		t.Error("descriptors for another process are taken")
	}
	if managerOf(func(string) string { return "" }, firstFD) != nil {
		t.Error("a manager without NOTIFY_SOCKET")
	}
}
