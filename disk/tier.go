package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

var (
	_ tier.Resident  = (*Tier)(nil)
	_ tier.Bounded   = (*Tier)(nil)
	_ tier.Tunable   = (*Tier)(nil)
	_ tier.Recoverer = (*Tier)(nil)
	_ tier.Reopener  = (*Tier)(nil)
	_ tier.Health    = (*Tier)(nil)
	_ tier.Scrubber  = (*Tier)(nil)
	_ tier.Summed    = (*Tier)(nil)
	_ tier.Pending   = (*Tier)(nil)
)

// reopenEvery is how long a Tier waits after an opening that failed, or after it was lost
// again; each time twice as long, up to reopenEveryMax. One that was open for
// metadata.SteadyAfter is opened again at once.
const (
	reopenEvery    = time.Second
	reopenEveryMax = 30 * time.Second
)

// Tier is payloads on one disk, or several. Create it with Open; it works while Run runs.
// It is safe for concurrent use.
//
//	opening --> open --lost--> off --> opening
//	   |                        ^
//	   +--the machine is ------>+
//	      against it
//
// One that is off says why (Trouble), and its calls fail with tier.ErrOff.
type Tier struct {
	o        Options
	log      zerolog.Logger
	now      atomic.Pointer[instance] // that is open, or was last, or a blank one; all calls go there
	openings atomic.Uint64
	reopened chan struct{} // capacity 1
	pending  chan opened   // gets the tier being opened; nil: none is
	told     told

	mu struct {
		sync.Mutex
		why    error // it is not open; nil: it is
		closed bool
		stop   context.CancelFunc // of Run
		set    string             // that of the folders, once they were open
	}
}

// told is what the tier was told for good, and each that is opened later is told again. It
// is locked while a tier is told or replaced, which may take long, before Tier.mu.
type told struct {
	sync.Mutex
	quotas []ledger.QuotaChange // in place of those of the options; nil: those
	spaces map[key.SpaceID]int
	works  func() ledger.Below
}

// opened is the result of an opening: an instance, or an error.
type opened struct {
	*instance
	err error
}

// Open opens a tier, for as long as the I/O timeout. What the machine has
// against that (files, memory, rights, room, a device, a folder that is not
// there) is no error: see IsTrouble. A wrong configuration is one.
func Open(o Options) (*Tier, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	t, err := newTier(o)
	if err != nil {
		return nil, err
	}
	t.begin("")
	select {
	case got := <-t.pending:
		t.pending = nil
		if got.err != nil && !IsTrouble(got.err) {
			return nil, got.err
		}
		t.install(got)
	case <-time.After(o.IOTimeout):
		t.install(opened{err: fmt.Errorf("disk: open: %w", blockio.ErrHung)})
	}
	return t, nil
}

// newTier has a blank instance, which knows no entries, and whose calls fail.
func newTier(o Options) (*Tier, error) {
	t := &Tier{o: o, log: o.Log.With().Str("component", "disk").Logger(), reopened: make(chan struct{}, 1)}
	t.told.spaces = make(map[key.SpaceID]int)
	blank, err := newInstance(t.o)
	if err != nil {
		return nil, err
	}
	blank.scan.active.Store(true)
	close(blank.ended)
	t.now.Store(blank)
	return t, nil
}

// begin opens a tier in the background, whose folders are those of a set; any,
// and also none, where that is "".
func (t *Tier) begin(set string) {
	t.pending = make(chan opened, 1)
	go func(to chan<- opened) {
		err := isOfSet(t.o.Meta, set)
		var i *instance
		if err == nil {
			i, err = open(t.o)
		}
		to <- opened{i, err}
	}(t.pending)
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
		return nil // open sets it aside
	case err != nil:
		return fmt.Errorf("%w: is its disk mounted? To begin with an empty folder start the daemon again", err)
	case m.Set != set:
		return fmt.Errorf("disk: %s belongs to the set %s, and did to %s: is another disk mounted there?", dir, m.Set, set)
	}
	return nil
}

// install takes an opened tier into use, or notes why it is not open.
func (t *Tier) install(got opened) {
	t.told.Lock()
	defer t.told.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.why = got.err
	switch {
	case got.err != nil:
		t.log.Error().Err(got.err).Msg("the disk tier cannot be opened; everything goes on without it until it can")
		return
	case t.mu.closed:
		_ = got.close() // no call has used it
		return
	}
	t.handOver(got.instance)
	again := t.mu.set != ""
	t.mu.set = got.instance.set.ID
	t.openings.Add(1)
	t.now.Store(got.instance)
	if again {
		base.Poke(t.reopened)
	}
}

// handOver gives a new tier the policy with its learned state, the quotas and spaces, and
// the StackOn function of the one before. Called with told locked.
func (t *Tier) handOver(to *instance) {
	from, fresh := t.Ledger(), to.ledger
	if name := from.PolicyName(); name != fresh.PolicyName() {
		if err := fresh.Tuning().SetPolicy(name); err != nil {
			t.log.Warn().Err(err).Msg("the policy of the disk tier is that of the configuration again")
		}
	}
	if data, err := from.Planning().Save(); err == nil && data != nil {
		if err := fresh.Planning().Load(data); err != nil {
			t.log.Warn().Err(err).Msg("what the policy had learned cannot be used; it learns anew")
		}
	}
	if t.told.quotas != nil {
		if err := fresh.Tuning().SetQuotas(t.told.quotas, nil); err != nil {
			t.log.Warn().Err(err).Msg("the quotas of the disk tier are those of the configuration again")
		}
	}
	for space, quota := range t.told.spaces {
		fresh.Tuning().Assign(space, quota)
	}
	if t.told.works != nil {
		fresh.Tuning().StackOn(t.told.works)
	}
}

// Run keeps the tier open and working until ctx ends or Close is called.
func (t *Tier) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	t.mu.Lock()
	t.mu.stop = stop
	if t.mu.closed {
		stop()
	}
	t.mu.Unlock()
	for pause := reopenEvery; ; {
		if t.Trouble() == nil {
			begun := time.Now()
			err := t.now.Load().run(ctx)
			if ctx.Err() != nil || t.isClosed() {
				return err
			}
			t.lose(err)
			if time.Since(begun) > metadata.SteadyAfter {
				pause = 0
			}
		}
		if !t.reopen(ctx, pause) {
			return nil
		}
		pause = min(max(2*pause, reopenEvery), reopenEveryMax)
	}
}

// lose ends the use of a tier whose Run has ended by itself.
func (t *Tier) lose(err error) {
	t.mu.Lock()
	t.mu.why = err
	t.mu.Unlock()
	t.log.Error().Err(err).Msg("the disk tier is lost; everything goes on without it until it is open again")
	if err := t.now.Load().close(); err != nil {
		t.log.Warn().Err(err).Msg("the disk tier did not close well")
	}
}

// reopen tries once, after a pause. It is false when ctx has ended.
func (t *Tier) reopen(ctx context.Context, pause time.Duration) bool {
	if t.pending == nil {
		if base.Sleep(ctx, pause) != nil {
			return false
		}
		t.mu.Lock()
		set := t.mu.set
		t.mu.Unlock()
		t.begin(set)
	}
	select {
	case <-ctx.Done():
		pending := t.pending
		go func() { // an opening that hangs may end some day
			if got := <-pending; got.instance != nil {
				_ = got.close()
			}
		}()
		return false
	case got := <-t.pending:
		t.pending = nil
		t.install(got)
		if got.err == nil {
			t.log.Info().Msg("the disk tier is open")
		}
		return true
	}
}

func (t *Tier) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.closed
}

// Close ends Run, and closes the tier.
func (t *Tier) Close() error {
	t.mu.Lock()
	was := t.mu.closed
	t.mu.closed = true
	if t.mu.stop != nil {
		t.mu.stop()
	}
	i := t.now.Load()
	t.mu.Unlock()
	if was || i.segments == nil { // a blank one
		return nil
	}
	return i.close()
}

// Trouble says why the tier is off; nil where it is open.
func (t *Tier) Trouble() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.why
}

// Off reports whether it is not open.
func (t *Tier) Off() bool { return t.Trouble() != nil }

// Openings implements tier.Reopener.
func (t *Tier) Openings() uint64 { return t.openings.Load() }

// Reopened implements tier.Reopener.
func (t *Tier) Reopened() <-chan struct{} { return t.reopened }

// failed is the error of a call, or none. The end of an instance is none of the tier, which is off.
func (t *Tier) failed(call string, err error) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, tier.ErrClosed) || t.isClosed() {
		return fmt.Errorf("disk: %s: %w", call, err)
	}
	if why := t.Trouble(); why != nil {
		return fmt.Errorf("disk: %w: %v", tier.ErrOff, why) //nolint:errorlint // callers are to test for ErrOff, not for the cause
	}
	return fmt.Errorf("disk: %w: it is being closed", tier.ErrOff)
}

// Name is "disk".
func (t *Tier) Name() string { return "disk" }

// DatabasePid is the id of the process of the database, which may have ended
// just now; 0 before the tier has been open.
func (t *Tier) DatabasePid() int {
	if i := t.now.Load(); i.db != nil {
		return i.db.Pid()
	}
	return 0
}

// Contains sets have[i] for every key that is resident, or, while recovery
// runs, that has a record.
func (t *Tier) Contains(ctx context.Context, ks []key.Key, have []bool) error {
	return t.failed("contains", t.now.Load().contains(ctx, ks, have))
}

// Has reports whether k is resident, or was when the tier was open.
func (t *Tier) Has(k key.Key) bool { return t.now.Load().has(k) }

// Sum implements tier.Summed. An entry that recovery has not come to is not known.
func (t *Tier) Sum(k key.Key) (sum uint64, size uint32, known bool) {
	e, state := t.Ledger().Find(k)
	return e.Value.B, e.Size, state == ledger.Resident
}

// Touch marks the keys of one chain as used, tail first.
func (t *Tier) Touch(ks []key.Key) {
	i := t.now.Load()
	i.ledger.Touch(ks)
	i.uses.add(ks)
}

// Ledger implements tier.Bounded: that of the tier that is open, or was last.
func (t *Tier) Ledger() *ledger.Ledger { return t.now.Load().ledger }

// Room implements tier.Bounded. While recovery runs the room is not known yet,
// and it answers math.MaxInt.
func (t *Tier) Room(size uint32) int { return t.now.Load().room(size) }

// SetMinFree changes Options.MinFreeBytes, also of each opening that follows. Entries beyond
// it go with the next Trim.
func (t *Tier) SetMinFree(bytes int64) { t.o.minFree.Store(bytes) }

// StackOn implements tier.Tunable.
func (t *Tier) StackOn(works func() ledger.Below) {
	t.told.Lock()
	defer t.told.Unlock()
	t.told.works = works
	t.Ledger().Tuning().StackOn(works)
}

// SetPolicy implements tier.Tunable. All entries are told to the new policy, which takes
// long: an instance that was installed meanwhile has the policy of before.
func (t *Tier) SetPolicy(name string) error {
	for {
		l := t.Ledger()
		err := l.Tuning().SetPolicy(name)
		t.told.Lock()
		same := t.Ledger() == l
		t.told.Unlock()
		if err != nil || same {
			return err
		}
	}
}

// Assign implements tier.Tunable.
func (t *Tier) Assign(space key.SpaceID, quota int) {
	t.told.Lock()
	defer t.told.Unlock()
	t.told.spaces[space] = quota
	t.Ledger().Tuning().Assign(space, quota)
}

// SetQuotas implements tier.Tunable. A tier that is opened later gets the quotas
// afresh.
func (t *Tier) SetQuotas(qs []ledger.QuotaChange, under map[key.SpaceID]int) error {
	t.told.Lock()
	defer t.told.Unlock()
	t.told.quotas, t.told.spaces = make([]ledger.QuotaChange, len(qs)), make(map[key.SpaceID]int, len(under))
	maps.Copy(t.told.spaces, under)
	for i, q := range qs {
		t.told.quotas[i] = ledger.QuotaChange{Quota: q.Quota, Was: -1}
	}
	return t.Ledger().Tuning().SetQuotas(qs, under)
}

// IsTrouble tells an error of an opening or of Check that may pass, so that a
// daemon serves without the tier meanwhile, from one of the configuration: what
// the machine has against it, and a database that ends its process.
func IsTrouble(err error) bool {
	transient := []error{fs.ErrNotExist, tier.ErrNoSpace, blockio.ErrHung, folders.ErrAbsent, errGone}
	return !errors.Is(err, folders.ErrInUse) &&
		(slices.ContainsFunc(transient, func(e error) bool { return errors.Is(err, e) }) || metadata.IsTrouble(err))
}
