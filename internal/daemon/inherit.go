package daemon

import (
	"fmt"
	"net"
	"os"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/checkpoint"
	"github.com/kvstored/kvstored/internal/handover"
	"github.com/kvstored/kvstored/internal/manifest"
	"github.com/kvstored/kvstored/internal/socket"
	"github.com/kvstored/kvstored/tier"
)

// inheritance is what a daemon begins with that goes on where another one has ended: that
// of another process, or of this one where a successor has failed. The zero and the nil
// one have nothing.
type inheritance struct {
	arena     *arena.Arena
	left      *manifest.Left      // of DRAM, where the other one just ended; nil: not known
	old       *os.File            // of left; nil once it is void
	directory *os.File            // of DRAM; nil: it is not known
	files     map[string]*os.File // listening sockets by address
	from      *predecessor        // that waits for what becomes of it; nil: none does
}

// listener is that of an address; false if it is to be made.
func (in *inheritance) listener(addr string) (l net.Listener, ok bool, err error) {
	if in == nil || in.files[addr] == nil {
		return nil, false, nil
	}
	l, err = net.FileListener(in.files[addr]) // a descriptor of its own: in keeps its one
	if err != nil {
		return nil, false, fmt.Errorf("the socket handed over for %s: %w", addr, err)
	}
	return l, true, nil
}

// listenSocket is socket.Listen, unless the socket is there.
func (in *inheritance) listenSocket(path string, mode os.FileMode, group string) (*net.UnixListener, error) {
	l, ok, err := in.listener(path)
	if err != nil {
		return nil, err
	}
	if !ok {
		return socket.Listen(path, mode, group)
	}
	ul, ok := l.(*net.UnixListener)
	if !ok {
		err = fmt.Errorf("the socket handed over for %s is no Unix socket", path)
	} else {
		err = socket.Give(path, mode, group)
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return ul, nil
}

// listenTCP takes host:port.
func (in *inheritance) listenTCP(key, addr string) (net.Listener, error) {
	l, ok, err := in.listener(addr)
	if ok || err != nil {
		return l, err
	}
	return ListenTCP(key, addr)
}

// handed reports whether another daemon lets go of what this one begins with: its folders
// may still be in use.
func (in *inheritance) handed() bool { return in != nil && in.left == nil }

// pending reports whether the predecessor may still take everything back.
func (in *inheritance) pending() bool { return in != nil && in.from != nil }

// fail has the predecessor go on, if it waits, and gives up everything but the arena.
func (in *inheritance) fail(why error) {
	if in.pending() {
		in.from.fail(why)
		in.close()
	}
}

// close closes the files of an inheritance.
func (in *inheritance) close() {
	if in == nil {
		return
	}
	for _, f := range in.files {
		_ = f.Close() // it was only listened on
	}
	if in.directory != nil {
		_ = in.directory.Close()
	}
	in.files, in.directory = nil, nil
}

// load makes the chunks of DRAM known that are in its directory. A directory that cannot
// be used leaves DRAM empty, and nothing worse.
func (in *inheritance) load(d *Daemon) {
	if in != nil && in.left != nil {
		in.resume(d)
	}
	if in == nil || in.directory == nil {
		return
	}
	data, unmap, err := handover.Map(in.directory)
	var f *checkpoint.File
	if err == nil {
		defer unmap() //nolint:errcheck // what it does not give back is small
		f, err = checkpoint.Open(data)
	}
	if err == nil && f.ArenaBytes() != d.arena.Stats().CapacityBytes {
		err = fmt.Errorf("it is of an arena of %d bytes, and this one has %d", f.ArenaBytes(), d.arena.Stats().CapacityBytes)
	}
	if err != nil {
		d.log.Warn().Err(err).Msg("the directory of DRAM cannot be used: it is set aside, and DRAM begins empty")
		return
	}
	if learned := f.Learned(); len(learned) > 0 {
		if err := d.cpu.Ledger().LoadPolicy(learned); err != nil {
			d.log.Warn().Err(err).Msg("what the policy of DRAM had learned cannot be used; it learns anew")
		}
	}
	chunks := 0
	lost := cpu.Load(d.cpu, f, func(part []tier.Resumed) {
		chunks += len(part)
		d.stack.Adopt(part)
	})
	d.log.Info().Int("chunks", chunks).Int("lost", lost).Int("voids", len(f.Voids())).Msg("DRAM is known again")
}
