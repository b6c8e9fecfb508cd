package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/fdstore"
	"github.com/kvstored/kvstored/internal/socket"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Names of the files that a keeper has of a daemon's memory. Other names are of sockets.
const (
	keptArena    = "arena"   // writable
	keptClients  = "clients" // the same, only readable
	keptManifest = "manifest"
)

// inheritance is what an earlier process has left with a keeper. The nil one has nothing.
type inheritance struct {
	sockets    fdstore.Files // not taken yet, by label
	memory                   // without an arena: there is none
	left       *cpu.Left
	unverified []key.Key // chunks whose payloads are to be proved
}

// memory is DRAM and its directory.
type memory struct {
	arena    *arena.Arena
	manifest *cpu.Manifest // nil without cpu.keep
}

// takeKept takes what an earlier process has left. Where its memory cannot be used DRAM
// begins empty, and the log says why; the keeper lets go of that first, or there would be
// memory for two. The error is fdstore.ErrBusy.
func takeKept(k fdstore.Keeper, c *config.Config, touch touchFunc, log *zerolog.Logger) (*inheritance, error) {
	f, err := k.Take()
	if errors.Is(err, fdstore.ErrBusy) {
		return nil, err
	}
	if err != nil {
		log.Warn().Err(err).Str("keeper", k.Name()).Msg("what is kept cannot be used: it is set aside, and DRAM begins empty")
		return nil, nil
	}
	whole, clients, list := f[keptArena], f[keptClients], f[keptManifest]
	for _, name := range []string{keptArena, keptClients, keptManifest} {
		delete(f, name)
	}
	in := &inheritance{sockets: f}
	if whole == nil && clients == nil && list == nil {
		log.Info().Str("keeper", k.Name()).Msg("it has no memory of DRAM yet; DRAM begins empty")
		return in, nil
	}
	if err = in.adopt(arena.Files{Whole: whole, Clients: clients}, list, c, touch); err != nil {
		err = errors.Join(err, k.Keep(in.sockets, false))
		log.Warn().Err(err).Str("keeper", k.Name()).Msg("the memory kept cannot be used: it is set aside, and DRAM begins empty")
		return in, nil
	}
	log.Info().Str("keeper", k.Name()).Int("chunks", in.left.Len()).Int("torn", in.left.Torn()).Bool("stopped", in.left.Stopped).Msg("an earlier process has left DRAM")
	return in, nil
}

// adopt goes on with memory. It takes the files over, and closes them where it fails.
func (in *inheritance) adopt(f arena.Files, list *os.File, c *config.Config, touch touchFunc) (err error) {
	var m *cpu.Manifest
	var left *cpu.Left
	if list == nil {
		err = errors.New("there is no manifest")
	} else if m, left, err = cpu.OpenManifest(list, shapeOf(c)); err != nil {
		_ = list.Close() // it was only read
	}
	if err != nil {
		f.Close()
		return err
	}
	a, err := arena.Adopt(f, arenaOptions(c, touch)) // closes its files where it fails
	if err != nil {
		return errors.Join(err, m.Close())
	}
	in.memory, in.left = memory{a, m}, left
	return nil
}

// has reports whether there is memory, and mem is that, or none.
func (in *inheritance) has() bool { return in != nil && in.arena != nil }

func (in *inheritance) mem() memory {
	if in == nil {
		return memory{}
	}
	return in.memory
}

// load makes the chunks known that are left in DRAM.
func (in *inheritance) load(d *Daemon) {
	if !in.has() {
		return
	}
	if len(in.left.Learned) > 0 {
		if err := d.cpu.Ledger().Planning().Load(in.left.Learned); err != nil {
			d.log.Warn().Err(err).Msg("what the policy of DRAM had learned before the stop cannot be used")
		}
	}
	begun, chunks, lost := time.Now(), 0, 0
	in.unverified, lost = cpu.Resume(d.cpu, in.left, d.disk != nil || d.remote != nil, func(part []tier.Resumed) {
		chunks += len(part)
		d.store.Recovery.Adopt(part)
	})
	d.log.Info().Int("chunks", chunks).Int("lost", lost).Stringer("took", time.Since(begun).Round(time.Millisecond)).
		Msg("DRAM is known again; each chunk is checked before its first use")
	if d.disk != nil && !d.distrusted.Known() { // the list is in the disk tier's folder
		d.log.Warn().Msg("the disk tier is not open: which spaces of DRAM are distrusted is known once it is")
	}
}

// prove checks what load has left unverified.
func (in *inheritance) prove(ctx context.Context, d *Daemon) error {
	if !in.has() {
		return nil
	}
	begun := time.Now()
	wrong, err := cpu.Prove(ctx, d.cpu, in.unverified)
	in.unverified = nil
	if err != nil {
		return nil // the daemon ends
	}
	d.countHuge()
	d.log.Info().Uint64("wrong", wrong).Stringer("took", time.Since(begun).Round(time.Millisecond)).Msg("all of DRAM is checked")
	return nil
}

// take is the socket with a label; nil: there is none.
func (in *inheritance) take(label string) *os.File {
	if in == nil {
		return nil
	}
	f := in.sockets[label]
	delete(in.sockets, label)
	return f
}

// drop lets go of the sockets that nothing has taken, and removes their files.
func (in *inheritance) drop(log *zerolog.Logger) {
	if in == nil {
		return
	}
	in.sockets.Close()
	for label := range in.sockets {
		path, _, _ := strings.Cut(label, "#")
		own, err := os.Lstat(path)
		if err != nil || labelOf(path, own) != label {
			continue
		}
		if err := socket.Unlisten(path, own); err != nil {
			log.Warn().Err(err).Msg("a socket that is not used any more stays")
		}
	}
	in.sockets = nil
}

// labelOf tells a socket from any other that is at its path at another time.
func labelOf(path string, own os.FileInfo) string {
	return fmt.Sprintf("%s#%d.%s", path, socket.Inode(own), own.ModTime().UTC().Format("150405.000000000"))
}

// listenUnix goes on with the socket at a path, or makes it.
func (in *inheritance) listenUnix(key, path string, mode os.FileMode, group string) (e endpoint, err error) {
	e = endpoint{addr: path, path: path}
	if own, err := os.Lstat(path); err == nil {
		if e.file = in.take(labelOf(path, own)); e.file != nil && e.resume() == nil {
			e.Listener, err = socket.Resume(e.Listener.(*net.UnixListener), own, path, mode, group)
			if err != nil {
				err = fmt.Errorf("%s: %w", key, err)
			}
			return e, err
		}
	}
	l, err := socket.Bind(path, mode, group)
	if err != nil {
		return endpoint{}, fmt.Errorf("%s: %w", key, err)
	}
	e.Listener = l
	return e, nil
}

// labelOfTCP is the same of host:port, which is another socket in another network.
func labelOfTCP(addr string) string {
	own, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return addr
	}
	return fmt.Sprintf("%s#%d", addr, socket.Inode(own))
}

// listenTCP goes on with the socket of host:port, or makes it.
func (in *inheritance) listenTCP(key, addr string) (e endpoint, err error) {
	e = endpoint{addr: addr}
	if e.file = in.take(labelOfTCP(addr)); e.file != nil && e.resume() == nil {
		return e, nil
	}
	e.Listener, err = listenTCP(key, addr)
	return e, err
}

// listenAt takes an address of the configuration: a socket's path or host:port.
func (in *inheritance) listenAt(c *config.Listen, key, addr string) (e endpoint, err error) {
	if isSocket(addr) {
		return in.listenUnix(key, addr, c.Mode, c.Group)
	}
	return in.listenTCP(key, addr)
}

// resume listens on the file, which it closes where it fails.
func (e *endpoint) resume() error {
	l, err := net.FileListener(e.file)
	_, unix := l.(*net.UnixListener)
	if err == nil && unix != (e.path != "") {
		err = errors.Join(fmt.Errorf("the socket kept for %s is of another kind", e.addr), l.Close())
	}
	if err != nil {
		_ = e.file.Close()
		e.file = nil
		return err
	}
	e.Listener, e.inherited = l, true
	return nil
}

// kept is what a keeper is to have of a listener, which holds that until it is closed.
func (e *endpoint) kept() (label string, f *os.File, err error) {
	if label = labelOfTCP(e.addr); e.path != "" {
		label = labelOf(e.path, e.Listener.(*socket.Listener).Own())
	}
	if e.file == nil {
		e.file, err = e.Listener.(interface{ File() (*os.File, error) }).File()
	}
	return label, e.file, err
}

// endpoint is a listener, and for a Unix socket its path and file.
type endpoint struct {
	net.Listener
	addr      string   // as the configuration has it
	path      string   // the same, of a Unix socket, whose Listener is a socket.Listener
	file      *os.File // that a keeper has; nil: none
	inherited bool     // from a keeper
}

// close ends the use of a listener. A socket that is kept goes on: connects wait.
func (e *endpoint) close(kept bool) error {
	err := e.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	if e.file != nil {
		err = errors.Join(err, e.file.Close())
	}
	if e.path != "" && !kept && !e.inherited {
		err = errors.Join(err, socket.Unlisten(e.path, e.Listener.(*socket.Listener).Own()))
	}
	return err
}

// look binds a socket again whose file was removed, and reports whether it has.
func (e *endpoint) look(log *zerolog.Logger) (again bool, err error) {
	l, ok := e.Listener.(*socket.Listener)
	if !ok {
		return false, nil
	}
	if again, err = l.Look(log); again {
		if e.file != nil {
			_ = e.file.Close() // a keeper has the one before
		}
		e.file, e.inherited = nil, false
	}
	return again, err
}

// isSocket tells a socket's path from host:port.
func isSocket(addr string) bool { return strings.HasPrefix(addr, "/") }

// listenTCP takes host:port, for the key that names it.
func listenTCP(key, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		var op *net.OpError // says once more what is listened on
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("%s: listen on %s: %w; choose another address", key, addr, err)
	}
	return l, nil
}

// readPassword is what a file names as the password: its first line. Without a
// file there is none.
func readPassword(path string) (string, error) {
	return config.ReadSecret("listen.resp_password_file", path)
}
