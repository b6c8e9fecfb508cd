package keep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/socket"
)

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
