package keep

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/handover"
)

// firstFD is the first descriptor that systemd passes (sd_listen_fds(3)).
const firstFD = 3

// Names of descriptors in the store of systemd: a prefix, the kind, and the number of
// the daemon that has stored it. Two daemons never use one name.
const (
	prefix   = "kvstored"
	whole    = "arena"
	clients  = "clients"
	manifest = "manifest"
)

// manager is systemd as a Keeper: sd_notify(3) with FDSTORE=1, and LISTEN_FDNAMES at the
// next start. It answers nothing, so that nothing is known to be kept before then.
type manager struct {
	socket string
	had    []stored // at the start; closed by Take, but for what that returns
	number uint64   // of this daemon
	arena  arena.Files
}

// stored is a descriptor of the store.
type stored struct {
	name, what string
	number     uint64
	file       *os.File
}

// managerOf finds the service manager in the environment, and the descriptors that it has
// passed from first on; nil if there is none.
func managerOf(env func(string) string, first int) *manager {
	socket := env("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	m := &manager{socket: socket, number: 1}
	n, err := strconv.Atoi(env("LISTEN_FDS"))
	if err != nil || env("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return m
	}
	for i, name := range strings.Split(env("LISTEN_FDNAMES"), ":") {
		if i >= n || i >= handover.MaxFiles {
			break
		}
		syscall.CloseOnExec(first + i)
		if s, ok := parseName(name); ok {
			s.file = os.NewFile(uintptr(first+i), name)
			m.had = append(m.had, s)
			m.number = max(m.number, s.number+1)
		}
	}
	return m
}

func parseName(name string) (s stored, ok bool) {
	parts := strings.Split(name, "-")
	if len(parts) != 3 || parts[0] != prefix {
		return s, false
	}
	n, err := strconv.ParseUint(parts[2], 10, 32)
	return stored{name: name, what: parts[1], number: n}, err == nil
}

// letGo closes what the manager has passed, for a process that has another keeper.
func (m *manager) letGo() {
	if m == nil {
		return
	}
	for _, s := range m.had {
		_ = s.file.Close() // it is memory
	}
	m.had = nil
}

func (m *manager) Name() string { return "the service manager's store" }

// Take returns the files of the last daemon that has stored a manifest. A daemon that goes
// on with an arena stores a manifest only.
func (m *manager) Take() (*Files, error) {
	f := filesOf([]*os.File{m.newest(whole), m.newest(clients), m.newest(manifest)})
	if f.Arena.Clients == nil { // the store keeps one of two that are the same: arena.puts: direct
		f.Arena.Clients = f.Arena.Whole
	}
	for i := range m.had {
		if s := &m.had[i]; s.file != f.Arena.Whole && s.file != f.Arena.Clients && s.file != f.Manifest {
			_ = s.file.Close()
		}
	}
	if f.Arena.Whole == nil || f.Arena.Clients == nil || f.Manifest == nil {
		for _, file := range f.list() {
			if file != nil {
				_ = file.Close()
			}
		}
		return nil, nil
	}
	m.arena = f.Arena
	return f, nil
}

// newest is the descriptor of a kind that was stored last; nil if there is none.
func (m *manager) newest(what string) (f *os.File) {
	var best uint64
	for _, s := range m.had {
		if s.what == what && s.number >= best {
			best, f = s.number, s.file
		}
	}
	return f
}

// Keep stores the new before it removes the old: a kill between the two leaves
// both, of which Take chooses the new.
func (m *manager) Keep(f *Files, _ bool) error {
	goesOn := m.arena.Whole != nil && f.Arena == m.arena
	var next []stored
	// The manifest first: beside the arena before, an empty one does no harm.
	for i, what := range []string{manifest, whole, clients} {
		if goesOn && what != manifest {
			continue
		}
		file := []*os.File{f.Manifest, f.Arena.Whole, f.Arena.Clients}[i]
		s := stored{name: fmt.Sprintf("%s-%s-%d", prefix, what, m.number), what: what, number: m.number, file: file}
		if err := m.notify("FDSTORE=1\nFDPOLL=0\nFDNAME="+s.name, s.file); err != nil {
			return err
		}
		next = append(next, s)
	}
	var errs []error
	for _, s := range m.had {
		if goesOn && (s.file == f.Arena.Whole || s.file == f.Arena.Clients) {
			next = append(next, s)
		} else {
			errs = append(errs, m.notify("FDSTOREREMOVE=1\nFDNAME="+s.name))
		}
	}
	m.had, m.arena = next, f.Arena
	m.number++
	return errors.Join(errs...)
}

func (m *manager) Drop() error {
	var errs []error
	for _, s := range m.had {
		errs = append(errs, m.notify("FDSTOREREMOVE=1\nFDNAME="+s.name))
	}
	m.had, m.arena = nil, arena.Files{}
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
	rights, err := handover.Rights(files)
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
