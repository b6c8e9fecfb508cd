package disk

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/filesystem"
	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/record"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

var (
	_ tier.Resident  = (*Tier)(nil)
	_ tier.Recoverer = (*Tier)(nil)
	_ tier.Scrubber  = (*Tier)(nil)
	_ tier.Bounded   = (*Tier)(nil)
	_ tier.Summed    = (*Tier)(nil)
	_ tier.Unsettled = (*Tier)(nil)
)

// Tier is payloads on one disk. Create it with Open; it works while Run runs.
// It is safe for concurrent use.
type Tier struct {
	o          Options
	now        atomic.Pointer[Settings] // in place of those in o
	log        zerolog.Logger
	trouble    zerolog.Logger // log for what may come in floods
	set        *folders.Set   // nil in a tier that was never open
	wrong      mismatches
	volumes    volumes  // by index
	missing    []string // the other paths
	segments   *segments
	db         *metadata.Store
	pulse      metadata.Pulse  // of db: a lock
	metaDev    *blockio.Device // what works for the database
	commits    *metadata.Committer
	ledger     *ledger.Ledger
	count      counters
	scan       scan
	uses       uses
	seal       *record.Sealer
	tombs      *tombWriter
	rebuilds   bool        // all headers are to be compared with the database; Recover's own
	surveyed   atomic.Bool // all headers say what the database says
	unclean    bool        // the last process did not end well
	rebuilding rebuilding
	trimming   chan struct{} // held by the one Trim that works
	giving     atomic.Bool   // set while one empties a segment

	space *space
	share *share // the database's part of the capacity

	fills       fills
	deleting    deleting
	deletionLog deletionLog
	life        struct {
		sync.Mutex
		running, closed bool
		stop            context.CancelFunc
	}
	ended chan struct{} // closed when Run has, or Close without Run
}

// Open takes the directories and opens the files that an earlier process left there.
// It starts nothing: run Run, then Recover. Another process on the same
// directories, a foreign directory and a newer format are errors, and so is a
// machine that lacks files, memory, room or rights; a damaged database is moved
// aside, with an error in the log, and Recover takes the entries from headers.
func Open(o Options) (*Tier, error) {
	return open(o)
}

// Check tells why Open would fail, as far as that shows without a change: over
// the options, over folders that cannot be made, are in use or belong to
// another tier, and over a database that lacks room or rights.
func Check(o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	if err := folders.Try(o.Paths, o.Meta); err != nil {
		return metadata.Advised(err)
	}
	if err := metadata.Check(o.Meta, o.MetaReserveBytes, o.free); err != nil {
		return metadata.Advised(err)
	}
	return nil
}

// Warnings say what Open would take, but hardly as it was meant.
func Warnings(o Options) (out []string) {
	for _, dir := range append(slices.Clone(o.Paths), o.Meta) {
		if gid, is := filesystem.Shared(dir); is && dir != "" {
			out = append(out, fmt.Sprintf("disk tier: all of group %d can write to %s, and so put chunks there; take that right away (chmod g-w) unless the group is the daemon's alone", gid, dir))
		}
	}
	return out
}

// open is Open with other kinds of folder under the first paths, where not nil.
func open(o Options, kinds ...blockio.Folder) (*Tier, error) { return openOn(o, nil, kinds...) }

// openOn is open with another file as the pulse of the database, where not nil.
func openOn(o Options, p metadata.Pulse, kinds ...blockio.Folder) (*Tier, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	t, err := newTier(o)
	if err != nil {
		return nil, err
	}
	t.pulse = p
	if err := (opening{t}).openAll(kinds); err != nil {
		t.release()
		return nil, metadata.Advised(err)
	}
	return t, nil
}

// newTier has nothing open.
func newTier(o Options) (*Tier, error) {
	t := &Tier{o: o, log: o.Log.With().Str("component", "disk").Logger(), trimming: make(chan struct{}, 1), ended: make(chan struct{})}
	t.tombs = newTombWriter(t)
	t.wrong.log = t.log
	t.trouble = t.log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Minute})
	t.Set(o.settings())
	p, err := policy.New(o.Policy, o.CapacityBytes-o.MetaReserveBytes)
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	t.ledger = ledger.New(ledger.Options{
		CapacityBytes: o.CapacityBytes - o.MetaReserveBytes, Entries: o.Entries, Policy: p, PolicyName: o.Policy, Quotas: o.Quotas, DeferTraining: o.DeferTraining,
		SizeOf: o.occupied,
	})
	t.fills.ledger = t.ledger
	return t, nil
}

// closeTimeout is the least that closing the database gets: it writes and
// syncs a table first, however short the I/O timeout.
const closeTimeout = 5 * time.Second

// release closes the database and the segments, and ends the locks. The process of
// a database that hangs with its device is killed; as long as it has not ended,
// Badger's own lock keeps others out.
func (t *Tier) release() error {
	var err error
	if t.db != nil {
		if err = within(max(t.o.IOTimeout, closeTimeout), t.db.Close); errors.Is(err, blockio.ErrHung) {
			t.log.Error().Err(err).Msg("the database does not close; its process is killed, and it is left as a crash would leave it")
			t.db.Kill(err)
		}
	}
	if t.segments != nil {
		t.tombs.endClean(err)
		t.segments.close()
	}
	t.deletionLog.close()
	if t.set != nil {
		t.set.Close()
	}
	return err
}

// Name is "disk".
func (t *Tier) Name() string { return "disk" }

// Close ends Run, waits for it, and closes the files. Calls after it return
// ErrClosed.
func (t *Tier) Close() error {
	t.life.Lock()
	if t.life.closed {
		t.life.Unlock()
		return nil
	}
	t.life.closed = true
	running := t.life.running
	if running {
		t.life.stop()
	}
	t.life.Unlock()
	if running {
		<-t.ended
	} else { // fail the work that waited for Run
		for _, d := range t.devices() {
			d.Stop()
		}
		for _, ch := range t.commits.Stop() {
			ch.Committed(tier.ErrClosed)
		}
		close(t.ended)
	}
	if err := t.release(); err != nil {
		return fmt.Errorf("disk: close: %w", err)
	}
	return nil
}

// usable fails when nothing can be done any more.
func (t *Tier) usable(ctx context.Context) error {
	select {
	case <-t.ended:
		return tier.ErrClosed
	default:
		return ctx.Err()
	}
}

// Contains sets have[i] for every key that is resident, or, while recovery
// runs, that has a record.
func (t *Tier) Contains(ctx context.Context, ks []key.Key, have []bool) error {
	if err := t.usable(ctx); err != nil {
		return fmt.Errorf("disk: contains: %w", err)
	}
	scanning := t.scan.active.Load()
	t.ledger.Lookup(ks, have)
	if !scanning {
		return nil
	}
	for i, k := range ks {
		if have[i] {
			continue
		}
		known, err := t.unscanned(ctx, k, nil)
		if err != nil {
			return fmt.Errorf("disk: contains: %w", err)
		}
		have[i] = known || t.Has(k) // the scan may have brought it meanwhile, and ended
	}
	return nil
}

// unscanned reports whether k has a record that recovery may not have come to,
// and copies it into e. Without anything to recover it is false at once. Entries
// that this process has stored are in the ledger; a record of its own that is not
// there is one of a Put under way, or of one that failed and is to be removed.
func (t *Tier) unscanned(ctx context.Context, k key.Key, e *record.Entry) (bool, error) {
	if !t.scan.active.Load() || t.scan.isDeleted(k) {
		return false, nil
	}
	// The call fills a struct of its own: it may go on after this has given up.
	var got struct {
		record.Entry
		found bool
	}
	err := t.call(ctx, t.metaDev, func() (err error) {
		got.found, err = t.db.Entry(k, &got.Entry)
		got.found = got.found && got.Seq < t.commits.First
		return err
	}, nil)
	if err != nil {
		return false, err
	}
	if got.found {
		t.o.Ages.Found(k, stampOf(&got.Entry))
	}
	if e != nil {
		*e = got.Entry
	}
	return got.found, nil
}

// Has reports whether k is resident.
func (t *Tier) Has(k key.Key) bool {
	_, state := t.ledger.Find(k)
	return state == ledger.Resident
}

// Sum implements tier.Summed. An entry that recovery has not come to is not known.
func (t *Tier) Sum(k key.Key) (sum uint64, size uint32, known bool) {
	e, state := t.ledger.Find(k)
	return e.Value.B, e.Size, state == ledger.Resident
}

// Touch marks the keys of one chain as used, tail first.
func (t *Tier) Touch(ks []key.Key) {
	t.ledger.Touch(ks)
	t.uses.add(ks)
}

// Set replaces the settings, from the next look at the room on: entries beyond
// them go with the next Trim. It is safe for concurrent use.
func (t *Tier) Set(to Settings) { t.now.Store(&to) }

// Ledger implements tier.Bounded.
func (t *Tier) Ledger() *ledger.Ledger { return t.ledger }

// Room implements tier.Bounded. While recovery runs the room is not known yet,
// and it answers math.MaxInt.
func (t *Tier) Room(size uint32) int {
	if t.scan.active.Load() {
		return math.MaxInt
	}
	n := int64(max(size, 1))
	room := -t.space.excess(0, false) / extentBytes(n)
	if n <= t.o.InlineMax {
		room = -t.share.short(0) / (filesWorth * metadata.HeldBytes(n, true))
	}
	return min(int(room), -t.space.surplus(0, false))
}

// devices are all there are, each once.
func (t *Tier) devices() (list []*blockio.Device) {
	for _, v := range t.volumes {
		list = append(list, v.dev)
	}
	if t.metaDev != nil && !slices.Contains(list, t.metaDev) {
		list = append(list, t.metaDev)
	}
	return list
}
