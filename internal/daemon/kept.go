package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/fdstore"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/socket"
)

// findKeeper finds what keeps the memory of DRAM over the end of this process; nil where
// nothing does.
func findKeeper(c *config.Config, log *zerolog.Logger) fdstore.Keeper {
	k, err := fdstore.Find(c.KeeperSocket())
	if !c.CPU.Keep {
		log.Info().Msg("DRAM ends with this process; cpu.keep: true, and serve --keeper or systemd's descriptor store, would keep it")
		if err == nil {
			letGo(k)
		}
		return nil
	}
	if errors.Is(err, fdstore.ErrNone) {
		log.Info().Str("socket", c.KeeperSocket()).Msg("DRAM ends with this process: serve --keeper does not listen, and no service manager was found")
		return nil
	}
	if err != nil {
		log.Warn().Err(err).Msg("DRAM ends with this process")
		return nil
	}
	return k
}

// letGo has a keeper let go of everything, and closes it: sockets would be another daemon's.
func letGo(k fdstore.Keeper) {
	if f, err := k.Take(); err == nil {
		f.Close()
		_ = k.Keep(nil, false) // it is said where the socket is in use then
	}
	_ = k.Close()
}

// askKeeper says what a keeper holds for the next start. That goes on holding it: the files
// are closed, and only their names count.
func askKeeper(c *config.Config) (held fdstore.Files, says string) {
	k, err := fdstore.Find(c.KeeperSocket())
	if err == nil {
		defer k.Close()
		held, err = k.Take()
	}
	switch {
	case errors.Is(err, fdstore.ErrNone):
		return nil, fmt.Sprintf("no keeper listens at %s: DRAM ends with the daemon, unless systemd keeps it", c.KeeperSocket())
	case err != nil:
		return nil, err.Error()
	}
	defer held.Close()
	memory, sockets := int64(0), len(held)
	if whole := held[keptArena]; whole != nil {
		sockets -= 3 // the arena twice, and the manifest
		if st, err := whole.Stat(); err == nil {
			memory = st.Size()
		}
	}
	return held, fmt.Sprintf("%s has %s and %s for the next start", k.Name(), human.Bytes(memory), human.Plural(uint64(sockets), "socket"))
}

// shapeOf is the size of the arena of a configuration.
func shapeOf(c *config.Config) int64 { return arena.RoundDown(int64(c.CPU.Capacity)) }

// EmptiesDRAM says why a daemon with the configuration next cannot have the DRAM of one
// that runs with running; nil if it can.
func EmptiesDRAM(running, next *config.Config) error {
	switch {
	case !running.CPU.Keep:
		return errors.New("the daemon that runs has cpu.keep: false")
	case !next.CPU.Keep:
		return errors.New("cpu.keep: false")
	case running.Listen.Socket != next.Listen.Socket:
		return errors.New("listen.socket: a keeper listens beside that of the daemon that runs")
	case shapeOf(running) != shapeOf(next):
		return errors.New("cpu.capacity: that is the size of what is kept")
	}
	return nil
}

// keepMemory has the keeper keep the memory and the sockets of this daemon. Without success
// they end with the process, as without a keeper. over says that another connection of it
// has them.
func keepMemory(d *Daemon, over bool) (kept bool) {
	if d.keeper == nil {
		return false
	}
	defer func() { d.kept.Store(kept) }()
	memory, err := d.arena.Files()
	files := fdstore.Files{keptArena: memory.Whole, keptClients: memory.Clients, keptManifest: d.manifest.File()}
	for _, e := range d.endpoints() {
		label, f, lerr := e.kept()
		if err = errors.Join(err, lerr); lerr == nil {
			files[label] = f
		}
	}
	if err == nil {
		err = d.keeper.Keep(files, over)
	}
	if err != nil {
		d.log.Warn().Err(err).Str("keeper", d.keeper.Name()).Msg("the memory of DRAM is not kept: it ends with this process")
		return false
	}
	d.log.Info().Str("keeper", d.keeper.Name()).Int("sockets", len(d.endpoints())).Msg("the memory of DRAM was given to its keeper")
	return true
}

// keeperPauseMost is between two looks for a keeper that keeps nothing.
const keeperPauseMost = time.Minute

// watch binds sockets again whose files were removed, and gives memory and sockets to a keeper
// that comes in place of one that has gone, until ctx ends.
func watch(ctx context.Context, d *Daemon) error {
	w := watcher{d: d, pause: socket.LookEvery}
	for ctx.Err() == nil {
		ended, silent := w.await(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if ended {
			w.gone, w.silent, w.next = true, silent, time.Now()
			d.kept.Store(false)
			d.log.Warn().Str("keeper", d.keeper.Name()).Msg("it has ended, or does not answer: DRAM ends with this process unless it starts again")
		}
		if w.look() && d.keeper != nil && !w.gone {
			keepMemory(d, false)
		}
		if w.gone && !time.Now().Before(w.next) {
			w.find()
		}
	}
	return nil
}

// watcher is watch at work.
type watcher struct {
	d      *Daemon
	gone   bool          // the keeper has
	silent bool          // it does not answer, and may still have files
	next   time.Time     // that a keeper is looked for
	pause  time.Duration // between two of these that keep nothing
}

// await returns after a while, or when a keeper has ended that had not.
func (w *watcher) await(ctx context.Context) (ended, silent bool) {
	ctx, cancel := context.WithTimeout(ctx, socket.LookEvery)
	defer cancel()
	if w.d.keeper == nil || w.gone {
		<-ctx.Done()
		return false, false
	}
	silent = w.d.keeper.Await(ctx)
	return silent || ctx.Err() == nil, silent
}

// look reports whether a socket was bound again.
func (w *watcher) look() (again bool) {
	var lost *error
	for _, e := range w.d.endpoints() {
		bound, err := e.look(&w.d.log)
		again = again || bound
		if err != nil {
			lost = &err
		}
	}
	w.d.lost.Store(lost)
	return again
}

// find gives everything to a keeper, if there is one again.
func (w *watcher) find() {
	k, err := fdstore.Find(w.d.cfg.KeeperSocket())
	if err != nil {
		return
	}
	before := w.d.keeper
	w.d.keeper = k
	if w.gone = !keepMemory(w.d, w.silent); w.gone {
		w.pause = min(2*w.pause, keeperPauseMost)
		w.next = time.Now().Add(w.pause)
	} else {
		w.pause = socket.LookEvery
	}
	_ = before.Close() // not sooner: a keeper that has files gives them away when no daemon has it
}
