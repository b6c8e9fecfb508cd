package disk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// keepEvery is how long a Keeper waits after an opening that failed, or a tier
// that was lost; each time twice as long, up to keepEveryMax.
const (
	keepEvery    = time.Second
	keepEveryMax = 30 * time.Second
)

// Keeper is a Tier that need not be open: one that cannot be opened, or is lost
// later, is off until it can, and says why. It opens a lost tier anew, as a
// start does. Create it with Keep; it works while Run runs. It is safe for
// concurrent use.
type Keeper struct {
	o        Options
	log      zerolog.Logger
	now      atomic.Pointer[Tier] // the last that was open, or a blank one; all calls go there
	openings atomic.Uint64
	reopened chan struct{} // capacity 1
	pending  chan opened   // gets the tier being opened; nil: none is
	quoting  sync.Mutex    // held while a tier is told of quotas or replaced, before mu

	mu struct {
		sync.Mutex
		why    error // it is not open; nil: it is
		closed bool
		stop   context.CancelFunc // of Run
		set    string             // that of the folders, once they were open
		spaces map[key.SpaceID]int
		works  func() ledger.Below

		settings Settings
		quotas   []ledger.Requota // in place of those of the options; nil: those

		byHand     bool  // Run of the tier is to end for a rebuild by hand
		handFailed error // why the last of these did not begin
	}
}

// opened is the result of an opening: a tier, or an error.
type opened struct {
	tier *Tier
	err  error
}

// Keep opens a tier, for as long as the I/O timeout. What the machine has
// against that (files, memory, rights, room, a device, a folder that is not
// there) is no error: see IsTrouble. A wrong configuration is one.
func Keep(o Options) (*Keeper, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	k := &Keeper{o: o, log: o.Log.With().Str("component", "disk").Logger(), reopened: make(chan struct{}, 1)}
	k.mu.spaces = make(map[key.SpaceID]int)
	k.mu.settings = o.settings()
	blank, err := newTier(o)
	if err != nil {
		return nil, err
	}
	blank.scan.active.Store(true) // its entries are not known
	close(blank.ended)
	k.now.Store(blank)
	k.begin("")
	select {
	case got := <-k.pending:
		k.pending = nil
		if got.err != nil && !IsTrouble(got.err) {
			return nil, got.err
		}
		k.install(got)
	case <-time.After(o.IOTimeout):
		k.install(opened{err: fmt.Errorf("disk: open: %w", blockio.ErrHung)})
	}
	return k, nil
}

// begin opens a tier in the background, whose folders are those of a set; any,
// and also none, where that is "".
func (k *Keeper) begin(set string) {
	k.pending = make(chan opened, 1)
	go func(to chan<- opened) {
		err := isOfSet(k.o.Meta, set)
		var t *Tier
		if err == nil {
			t, err = Open(k.o)
		}
		to <- opened{t, err}
	}(k.pending)
}

// isOfSet is an error unless a folder is one of a set's. One that was there and
// is empty now, as when its disk is not mounted, is not to be filled.
func isOfSet(dir, set string) error {
	if set == "" {
		return nil
	}
	m, _, err := folders.ReadMarker(dir)
	switch {
	case errors.Is(err, folders.ErrGarbled):
		return nil // Open sets it aside
	case err != nil:
		return fmt.Errorf("%w: is its disk mounted? To begin with an empty folder start the daemon again", err)
	case m.Set != set:
		return fmt.Errorf("disk: %s belongs to the set %s, and did to %s: is another disk mounted there?", dir, m.Set, set)
	}
	return nil
}

// install takes an opened tier into use, or notes why it is not open.
func (k *Keeper) install(got opened) {
	k.quoting.Lock()
	defer k.quoting.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.why = got.err
	switch {
	case got.err != nil:
		k.log.Error().Err(got.err).Msg("the disk tier cannot be opened; everything goes on without it until it can")
		return
	case k.mu.closed:
		_ = got.tier.Close() // no call has used it
		return
	}
	k.handOver(got.tier)
	again := k.mu.set != ""
	k.mu.set = got.tier.set.ID
	k.openings.Add(1)
	k.now.Store(got.tier)
	if again {
		select {
		case k.reopened <- struct{}{}:
		default:
		}
	}
}

// handOver gives a new tier the settings, the policy with its learned state, the
// quotas and spaces, and the StandOn function of the one before. Called with the
// mutex held.
func (k *Keeper) handOver(to *Tier) {
	from, fresh := k.Ledger(), to.ledger
	to.Set(k.mu.settings)
	if name := from.PolicyName(); name != fresh.PolicyName() {
		if err := fresh.SetPolicy(name); err != nil {
			k.log.Warn().Err(err).Msg("the policy of the disk tier is that of the configuration again")
		}
	}
	if data, err := from.SavePolicy(); err == nil && data != nil {
		if err := fresh.LoadPolicy(data); err != nil {
			k.log.Warn().Err(err).Msg("what the policy had learned cannot be used; it learns anew")
		}
	}
	if k.mu.quotas != nil {
		if err := fresh.Requote(k.mu.quotas, nil); err != nil {
			k.log.Warn().Err(err).Msg("the quotas of the disk tier are those of the configuration again")
		}
	}
	for space, quota := range k.mu.spaces {
		fresh.Assign(space, quota)
	}
	if k.mu.works != nil {
		fresh.StandOn(k.mu.works)
	}
}

// Run keeps the tier open and working until ctx ends or Close is called.
func (k *Keeper) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	k.mu.Lock()
	k.mu.stop = stop
	if k.mu.closed {
		stop()
	}
	k.mu.Unlock()
	for pause := keepEvery; ; {
		if k.Trouble() == nil {
			begun := time.Now()
			err := k.now.Load().Run(ctx)
			if ctx.Err() != nil || k.isClosed() {
				return err
			}
			if k.setOut() {
				if !k.reopen(ctx, 0) {
					return nil
				}
				continue
			}
			k.lose(err)
			if time.Since(begun) > metadata.SteadyAfter {
				pause = keepEvery
			}
		}
		if !k.reopen(ctx, pause) {
			return nil
		}
		pause = min(2*pause, keepEveryMax)
	}
}

// lose ends the use of a tier whose Run has ended by itself.
func (k *Keeper) lose(err error) {
	k.mu.Lock()
	k.mu.why = err
	k.mu.Unlock()
	k.log.Error().Err(err).Msg("the disk tier is lost; everything goes on without it until it is open again")
	if err := k.now.Load().Close(); err != nil {
		k.log.Warn().Err(err).Msg("the disk tier did not close well")
	}
}

// reopen tries once, after a pause. It is false when ctx has ended.
func (k *Keeper) reopen(ctx context.Context, pause time.Duration) bool {
	if k.pending == nil {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
		k.mu.Lock()
		set := k.mu.set
		k.mu.Unlock()
		k.begin(set)
	}
	select {
	case <-ctx.Done():
		pending := k.pending
		go func() { // an opening that hangs may end some day
			if got := <-pending; got.tier != nil {
				_ = got.tier.Close()
			}
		}()
		return false
	case got := <-k.pending:
		k.pending = nil
		k.install(got)
		if got.err == nil {
			k.log.Info().Msg("the disk tier is open")
		}
		return true
	}
}

func (k *Keeper) isClosed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.closed
}

// Close ends Run, and closes the tier.
func (k *Keeper) Close() error {
	k.mu.Lock()
	was := k.mu.closed
	k.mu.closed = true
	if k.mu.stop != nil {
		k.mu.stop()
	}
	t := k.now.Load()
	k.mu.Unlock()
	if was || t.segments == nil { // a blank one
		return nil
	}
	return t.Close()
}

// Trouble says why the tier is off; nil where it is open.
func (k *Keeper) Trouble() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.why
}

// Off reports whether it is not open.
func (k *Keeper) Off() bool { return k.Trouble() != nil }

// Openings implements tier.Reopener.
func (k *Keeper) Openings() uint64 { return k.openings.Load() }

// Reopened implements tier.Reopener.
func (k *Keeper) Reopened() <-chan struct{} { return k.reopened }

// says makes of the end of a tier that it is off.
func (k *Keeper) says(err error) error {
	if !errors.Is(err, tier.ErrClosed) || k.isClosed() {
		return err
	}
	if why := k.Trouble(); why != nil {
		return fmt.Errorf("disk: %w: %v", tier.ErrOff, why) //nolint:errorlint // callers are to test for ErrOff, not for the cause
	}
	return fmt.Errorf("disk: %w: it is being closed", tier.ErrOff)
}
