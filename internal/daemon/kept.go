package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/keep"
	"github.com/kvstored/kvstored/internal/manifest"
	"github.com/kvstored/kvstored/tier"
)

// findKeeper finds what keeps the memory of DRAM over the end of this process; nil where
// nothing does.
func findKeeper(c *config.Config, log *zerolog.Logger) keep.Keeper {
	if !c.Upgrade.HandOver {
		log.Info().Msg("DRAM ends with this process; upgrade.hand_over: true, and kvstored keep or systemd's descriptor store, would keep it")
		return nil
	}
	k, err := keep.Find(c.KeeperSocket())
	if errors.Is(err, keep.ErrNone) {
		log.Info().Str("socket", c.KeeperSocket()).Msg("DRAM ends with this process unless a successor takes over: kvstored keep does not listen, and no service manager was found")
		return nil
	}
	if err != nil {
		log.Warn().Err(err).Msg("DRAM ends with this process unless a successor takes over")
		return nil
	}
	return k
}

// takeKept takes the memory that an earlier process has left; nil where there is none, or
// none that can be used. DRAM begins empty then, and the log says why; the keeper lets go
// of what cannot be used first, or there would be memory for two. The error is
// keep.ErrBusy.
func takeKept(k keep.Keeper, c *config.Config, log *zerolog.Logger) (*inheritance, error) {
	f, err := k.Take()
	if errors.Is(err, keep.ErrBusy) {
		return nil, err
	}
	if err == nil && f == nil {
		log.Info().Str("keeper", k.Name()).Msg("it has no memory of DRAM yet; DRAM begins empty")
		return nil, nil
	}
	var in *inheritance
	if err == nil {
		in, err = adopt(f, c)
	}
	if err != nil {
		err = errors.Join(err, k.Drop())
		log.Warn().Err(err).Str("keeper", k.Name()).Msg("the memory kept cannot be used: it is set aside, and DRAM begins empty")
		return nil, nil
	}
	log.Info().Str("keeper", k.Name()).Int("chunks", in.left.Len()).Int("torn", in.left.Torn()).Msg("an earlier process has left DRAM")
	return in, nil
}

// adopt makes an inheritance of files, which it takes over.
func adopt(f *keep.Files, c *config.Config) (*inheritance, error) {
	left, err := manifest.Open(f.Manifest, shapeOf(c).bytes)
	if err != nil {
		f.Close()
		return nil, err
	}
	a, err := arena.Adopt(f.Arena, arenaOptions(c)) // closes its files where it fails
	if err != nil {
		_ = f.Manifest.Close() // it was only read
		return nil, errors.Join(err, left.Close())
	}
	return &inheritance{arena: a, left: left, old: f.Manifest}, nil
}

// resume makes the chunks of a manifest known.
func (in *inheritance) resume(d *Daemon) {
	begun, chunks := time.Now(), 0
	lost := cpu.Resume(d.cpu, in.left, d.disk != nil || d.remote != nil, func(part []tier.Resumed) {
		chunks += len(part)
		d.stack.Adopt(part)
	})
	d.log.Info().Int("chunks", chunks).Int("lost", lost).Stringer("took", time.Since(begun).Round(time.Millisecond)).
		Msg("DRAM is known again; each chunk is checked before its first use")
}

// prove checks what resume has left in doubt.
func (in *inheritance) prove(ctx context.Context, d *Daemon) error {
	if in == nil || in.left == nil {
		return nil
	}
	defer in.left.Close() //nolint:errcheck // it was only read
	begun := time.Now()
	wrong, err := cpu.Prove(ctx, d.cpu, in.left)
	if err != nil {
		return nil // the daemon ends
	}
	d.log.Info().Uint64("wrong", wrong).Stringer("took", time.Since(begun).Round(time.Millisecond)).Msg("all of DRAM is checked")
	return nil
}

// keepMemory has the keeper keep the memory of this daemon. Without success DRAM ends with the
// process, as it does without a keeper: the manifest that an earlier process has left is
// void in any case, for the arena changes from now on. over says that it has those of
// another connection.
func keepMemory(d *Daemon, over bool) (kept bool) {
	if d.keeper == nil {
		return false
	}
	if d.from != nil && d.from.old != nil {
		defer func() {
			err := errors.Join(manifest.Void(d.from.old), d.from.old.Close())
			if d.from.old = nil; err != nil {
				d.log.Error().Err(err).Msg("the manifest of the process before")
			}
		}()
	}
	files, err := d.arena.Files()
	if err == nil {
		err = d.keeper.Keep(&keep.Files{Arena: files, Manifest: d.manifest.File()}, over)
	}
	if err != nil {
		d.log.Warn().Err(err).Str("keeper", d.keeper.Name()).Msg("the memory of DRAM is not kept: it ends with this process")
		return false
	}
	d.log.Info().Str("keeper", d.keeper.Name()).Msg("the memory of DRAM was given to its keeper")
	return true
}

// watchKeeper gives the memory to a keeper that comes in place of one that has gone, until
// ctx ends.
func watchKeeper(ctx context.Context, d *Daemon) error {
	if d.keeper == nil {
		return nil
	}
	for pause := keeperPause; ; {
		silent := d.keeper.Await(ctx)
		if ctx.Err() != nil {
			return nil
		}
		d.log.Warn().Str("keeper", d.keeper.Name()).Msg("it has ended, or does not answer: DRAM ends with this process unless it starts again")
		next := findAgain(ctx, d, pause)
		if next == nil {
			return nil
		}
		before := d.keeper
		d.keeper = next
		if keepMemory(d, silent || d.from.handed()) {
			pause = keeperPause
		} else {
			pause = min(2*pause, keeperPauseMost)
		}
		_ = before.Close() // not sooner: a keeper that has files gives them away when no daemon has it
	}
}

// findAgain looks for a keeper after each pause. It is nil when ctx has ended: a successor
// may have given the keeper its own.
func findAgain(ctx context.Context, d *Daemon, pause time.Duration) keep.Keeper {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		k, err := keep.Find(d.cfg.KeeperSocket())
		switch {
		case err != nil:
		case ctx.Err() != nil:
			_ = k.Close() // nothing was said to it
			return nil
		default:
			return k
		}
	}
}

// keeperPause is between two looks for a keeper that has gone, and longer after each one
// that keeps nothing.
const (
	keeperPause     = time.Second
	keeperPauseMost = time.Minute
)
