package disk

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/disk/internal/filesystem"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/tier"
)

// rebuilding is how far a rebuild of the index is, or what the last one of this
// Tier did.
type rebuilding struct {
	running                            atomic.Bool
	begun                              atomic.Pointer[time.Time]
	took                               atomic.Int64 // nanoseconds
	bytes, total                       atomic.Uint64
	headers, restored, dropped, sealed atomic.Uint64
}

// begin starts the counts anew, for segments of so many bytes.
func (r *rebuilding) begin(total int64) {
	for _, n := range []*atomic.Uint64{&r.bytes, &r.headers, &r.restored, &r.dropped, &r.sealed} {
		n.Store(0)
	}
	r.total.Store(uint64(total))
	now := time.Now()
	r.begun.Store(&now)
	r.running.Store(true)
}

func (r *rebuilding) end() {
	if begun := r.begun.Load(); r.running.CompareAndSwap(true, false) && begun != nil {
		r.took.Store(int64(time.Since(*begun)))
	}
}

// errByHand is why a tier is off while it is closed for a rebuild by hand.
var errByHand = errors.New("it is opened again to make its index anew")

// Rebuild implements tier.Rebuilder. The tier is closed, so that the headers of
// all freed extents are written, and opened again with the order to compare all
// headers with the database. Where a header could not be written that order is
// not given: deleted entries might come back.
func (k *Keeper) Rebuild(ctx context.Context) error {
	t := k.now.Load()
	if err := k.canRebuild(t); err != nil {
		return err
	}
	if err := t.tombs.flush(ctx); err != nil {
		return k.says(fmt.Errorf("disk: rebuild: the headers of what was freed cannot be written: %w", err))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.byHand || k.now.Load() != t {
		return errRebuilding
	}
	if err := t.halt(); err != nil {
		return fmt.Errorf("disk: rebuild: %w", err)
	}
	k.mu.byHand, k.mu.handFailed = true, nil
	return nil
}

// errRebuilding refuses a rebuild while there is another, or the scan of a start.
var errRebuilding = fmt.Errorf("disk: rebuild: the index is being made already; wait until that is done: %w", tier.ErrOff)

func (k *Keeper) canRebuild(t *Tier) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.mu.byHand || errors.Is(k.mu.why, errByHand) || k.mu.why == nil && t.scan.active.Load():
		return errRebuilding
	case k.mu.why != nil:
		return fmt.Errorf("disk: rebuild: the tier is off, and opened again by itself: %w: %v", tier.ErrOff, k.mu.why) //nolint:errorlint // see says
	}
	return nil
}

// Rebuilt implements tier.Rebuilder.
func (k *Keeper) Rebuilt() (tier.Rebuilt, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.mu.byHand || errors.Is(k.mu.why, errByHand):
		return tier.Rebuilt{Running: true}, nil
	case k.mu.handFailed != nil:
		return tier.Rebuilt{}, k.mu.handFailed
	case k.mu.why != nil:
		return tier.Rebuilt{}, fmt.Errorf("disk: rebuild: the tier is off: %w: %v", tier.ErrOff, k.mu.why) //nolint:errorlint // see says
	}
	return k.now.Load().Rebuilt(), nil
}

// setOut closes a tier for a rebuild by hand, if that is why its Run has ended.
func (k *Keeper) setOut() bool {
	k.mu.Lock()
	byHand := k.mu.byHand
	if byHand {
		k.mu.why, k.mu.byHand = errByHand, false
	}
	k.mu.Unlock()
	if !byHand {
		return false
	}
	k.log.Info().Msg("the disk tier is opened again to make its index anew, by order")
	err := k.now.Load().Close()
	if err == nil {
		err = orderRebuild(k.o.Meta)
	}
	if err != nil {
		err = fmt.Errorf("disk: rebuild: the tier did not close well, so its index is not made anew: %w", err)
		k.log.Error().Err(err).Msg("the disk tier is opened as it is")
		k.mu.Lock()
		k.mu.handFailed = err
		k.mu.Unlock()
	}
	return true
}

// orderRebuild has the next opening make the index anew. The tier was closed:
// unless it left all headers in order, that is an error.
func orderRebuild(meta string) error {
	at, err := filesystem.OpenFolder(meta)
	if err != nil {
		return err
	}
	defer at.Close() //nolint:errcheck // nothing was written through it
	clean, err := at.Exists(cleanName)
	if err == nil && !clean {
		err = errors.New("the headers of what was freed are not all written")
	}
	if err == nil {
		err = at.Replace(metadata.RebuildName, nil)
	}
	return err
}
