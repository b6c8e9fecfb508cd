package fdstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/socket"
)

// timeout is how long a keeper has for an answer.
const timeout = 5 * time.Second

// Files are the descriptors that are kept, by name.
type Files map[string]*os.File

// Close closes all of them.
func (f Files) Close() {
	for _, file := range f {
		_ = file.Close() // nothing was written to it
	}
}

// names are those of the files in order, and list are these.
func (f Files) parts() (names []string, list []*os.File) {
	names = slices.Sorted(maps.Keys(f))
	for _, name := range names {
		list = append(list, f[name])
	}
	return names, list
}

// Keeper keeps the descriptors of a daemon.
type Keeper interface {
	// Name is what the keeper is called in messages.
	Name() string
	// Take returns all files of the keeper, or ErrBusy. They are the caller's to close; the
	// keeper has its own, until Keep.
	Take() (Files, error)
	// Keep has the keeper keep f, and drop all others. The files stay the caller's.
	// over says that another connection of the caller's has those before. After an error
	// but ErrBusy the keeper may have the files before, or some.
	Keep(f Files, over bool) error
	// Await returns when the keeper has ended, and let go of the files, or ctx has. It returns
	// silent at once where the keeper has not answered: that may still have files, and is
	// asked nothing more.
	Await(ctx context.Context) (silent bool)
	// Close ends the use of the keeper, which goes on keeping.
	Close() error
}

// ErrBusy says that another daemon has what is kept, and still runs.
var ErrBusy = errors.New("the daemon that has the memory kept still runs; one can have it at a time: stop that one")

// errSilent says that a keeper is not asked again.
var errSilent = errors.New("it has not answered before, and is left alone")

// ErrNone says that nothing keeps descriptors.
var ErrNone = errors.New("nothing keeps the memory of DRAM when this process is killed")

// Find returns the keeper of a daemon: the one that listens at path, else the service
// manager that has started this process. ErrNone says that there is neither. A keeper that
// cannot be used, as one of another user, is an error where there is no manager.
func Find(path string) (Keeper, error) {
	m := managerOf(os.Getenv, firstFD)
	conn, err := dial(path, timeout)
	if err == nil {
		if m != nil {
			m.had.Close()
		}
		return &client{conn: conn, path: path, timeout: timeout}, nil
	}
	switch {
	case m != nil:
		return m, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, ErrNone
	}
	return nil, fmt.Errorf("keeper at %s: %w", path, err)
}

// client is a Keeper that a Server serves. A keeper that does not answer, or answers with
// nonsense, is left alone from then on: it would hold the daemon up again. The connection
// stays, for its end says that the daemon has ended.
type client struct {
	conn    *Conn
	path    string
	timeout time.Duration // for each message
	silent  bool
}

func (c *client) Name() string { return "the keeper at " + c.path }

func (c *client) Take() (Files, error) { return c.ask(Message{Step: Take}) }

func (c *client) Keep(f Files, over bool) error {
	names, list := f.parts()
	_, err := c.ask(Message{Step: Keep, Names: names, Over: over}, list...)
	return err
}

// ask sends one message and returns the files of the answer.
func (c *client) ask(m Message, files ...*os.File) (Files, error) {
	if c.silent {
		return nil, fmt.Errorf("keeper: %s: %w", m.Step, errSilent)
	}
	m.Program = human.VersionText()
	var answer Message
	var list []*os.File
	err := c.conn.Send(m, c.timeout, files...)
	if err == nil {
		answer, list, err = c.conn.await(Taken, c.timeout)
	}
	if err != nil {
		c.silent = true // the rest of it would be taken for the next answer
	} else if answer.Busy {
		err = ErrBusy
	}
	if err != nil {
		socket.CloseFiles(list)
		return nil, fmt.Errorf("keeper: %s: %w", m.Step, err)
	}
	return named(answer.Names, list)
}

// named are the files of a message by their names. It closes them where it fails.
func named(names []string, list []*os.File) (Files, error) {
	f := make(Files, len(list))
	if len(names) == len(list) {
		for i, name := range names {
			f[name] = list[i]
		}
	}
	if len(f) != len(list) {
		socket.CloseFiles(list)
		return nil, fmt.Errorf("keeper: %d descriptors with %d names: want a name for each, and none twice", len(list), len(names))
	}
	return f, nil
}

func (c *client) Await(ctx context.Context) (silent bool) {
	if !c.silent {
		c.conn.awaitEnd(ctx)
	}
	return c.silent
}

func (c *client) Close() error { return c.conn.Close() }

// firstFD is the first descriptor that systemd passes (sd_listen_fds(3)).
const firstFD = 3

// prefix is before each name in the store.
const prefix = "kvstored-"

// maxName is the longest name that systemd takes.
const maxName = 255

// manager is systemd as a Keeper: sd_notify(3) with FDSTORE=1, and LISTEN_FDNAMES at the
// next start. It answers nothing, so that nothing is known to be kept before then.
type manager struct {
	socket string
	had    Files // that the store has
}

// managerOf finds the service manager in the environment, and the descriptors that it has
// passed from first on; nil if there is none.
func managerOf(env func(string) string, first int) *manager {
	socket := env("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	m := &manager{socket: socket, had: Files{}}
	n, err := strconv.Atoi(env("LISTEN_FDS"))
	if err != nil || env("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return m
	}
	for i, text := range strings.Split(env("LISTEN_FDNAMES"), ":") {
		if i >= n || i >= MaxFiles {
			break
		}
		syscall.CloseOnExec(first + i)
		coded, ours := strings.CutPrefix(text, prefix)
		name, err := url.QueryUnescape(coded)
		if ours && err == nil && m.had[name] == nil {
			m.had[name] = os.NewFile(uintptr(first+i), name)
		}
	}
	return m
}

// coded is a name as the store has it, where : is between two names.
func coded(name string) string { return prefix + url.QueryEscape(name) }

func (m *manager) Name() string { return "the service manager's store" }

func (m *manager) Take() (Files, error) { return maps.Clone(m.had), nil }

// Keep removes before it stores: of one name the store never has two.
func (m *manager) Keep(f Files, _ bool) error {
	var errs []error
	for name, file := range m.had {
		if f[name] != file {
			errs = append(errs, m.notify("FDSTOREREMOVE=1\nFDNAME="+coded(name)))
			delete(m.had, name)
		}
	}
	for name, file := range f {
		if m.had[name] == file || len(coded(name)) > maxName {
			continue
		}
		if err := m.notify("FDSTORE=1\nFDPOLL=0\nFDNAME="+coded(name), file); err != nil {
			return errors.Join(append(errs, err)...)
		}
		m.had[name] = file
	}
	return errors.Join(errs...)
}

// notify sends one message to the manager.
func (m *manager) notify(text string, files ...*os.File) error {
	name := m.socket
	if strings.HasPrefix(name, "@") { // in the abstract namespace
		name = "\x00" + name[1:]
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("$NOTIFY_SOCKET: %w", err)
	}
	defer c.Close()
	rights, err := socket.Rights(files)
	if err != nil {
		return err
	}
	if err := c.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return fmt.Errorf("$NOTIFY_SOCKET: %w", err)
	}
	if err := sendmsg(c, []byte(text), rights); err != nil {
		return fmt.Errorf("$NOTIFY_SOCKET: %s: %w", strings.ReplaceAll(text, "\n", " "), err)
	}
	return nil
}

// sendmsg is WriteMsgUnix, which refuses datagrams of a connected socket.
func sendmsg(c *net.UnixConn, text, rights []byte) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	werr := raw.Write(func(fd uintptr) bool {
		err = unix.Sendmsg(int(fd), text, rights, nil, 0)
		return !errors.Is(err, unix.EAGAIN)
	})
	return errors.Join(werr, err)
}

// Await waits for ctx: the manager ends after its units.
func (m *manager) Await(ctx context.Context) (silent bool) {
	<-ctx.Done()
	return false
}

func (m *manager) Close() error { return nil }
