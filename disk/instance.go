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
	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

// instance is a Tier from an opening of its folders to its end: one that is closed or lost
// is not opened again. It works while run runs.
type instance struct {
	o          Options
	log        zerolog.Logger
	trouble    zerolog.Logger // log for what may come in floods
	set        *folders.Set   // nil in a tier that was never open
	volumes    volumes        // by index
	missing    []string       // the other paths
	segments   *segments
	db         *metadata.Store
	metaDev    *blockio.Device // what works for the database
	commits    *metadata.Committer
	ledger     *ledger.Ledger
	count      *counters
	payload    atomic.Int64 // bytes resident
	scan       scan
	uses       uses
	seal       *database.Sealer
	tombs      *tombWriter
	rebuilds   bool        // all headers are to be compared with the database; Recover's own
	surveyed   atomic.Bool // all headers say what the database says
	unclean    bool        // the last process did not end well
	rebuilding rebuilding
	trimming   turn        // of the one Trim that works
	emptying   atomic.Bool // set while one empties a segment

	headroom *headroom
	budget   *budget // the database's part of the capacity

	fills       fills
	deleting    deleting
	deletionLog *deletionLog
	life        struct {
		sync.Mutex
		running, closed bool
		stop            context.CancelFunc
	}
	ended chan struct{} // closed when run has, or close without run
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
	all := slices.Clone(o.Paths)
	if o.Meta != "" && !slices.Contains(all, o.Meta) {
		all = append(all, o.Meta)
	}
	for _, dir := range all {
		if gid, is := folders.Shared(dir); is {
			out = append(out, fmt.Sprintf("disk tier: all of group %d can write to %s, and so put chunks there; take that right away (chmod g-w) unless the group is the daemon's alone", gid, dir))
		}
	}
	return out
}

// open takes the directories and opens the files that an earlier process left there. It starts
// nothing: run it, then recover. Another process on the same directories, a foreign directory
// and a newer format are errors, and so is a machine that lacks files, memory, room or rights;
// a damaged database is moved aside, with an error in the log, and recover takes the entries
// from headers.
func open(o Options) (*instance, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	t, err := newInstance(o)
	if err != nil {
		return nil, err
	}
	if err := (opening{t}).openAll(); err != nil {
		_ = t.release() // the error of the opening counts
		return nil, metadata.Advised(err)
	}
	return t, nil
}

// heldShare is the part of the tier that clients may have held against eviction at a time,
// what these chunks stand on included.
const heldShare = 4

// newInstance has nothing open.
func newInstance(o Options) (*instance, error) {
	t := &instance{o: o, count: o.count, log: o.Log.With().Str("component", "disk").Logger(), trimming: newTurn(), ended: make(chan struct{})}
	t.tombs = &tombWriter{t: t, turn: newTurn()}
	t.trouble = t.log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Minute})
	p, err := policy.New(o.Policy, o.CapacityBytes-o.MetaReserveBytes)
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	most := (o.CapacityBytes - o.MetaReserveBytes) / heldShare
	t.ledger = ledger.New(ledger.Options{
		CapacityBytes: o.CapacityBytes - o.MetaReserveBytes, Entries: o.Entries, Policy: p, PolicyName: o.Policy, Quotas: o.Quotas, DeferTraining: o.DeferTraining,
		SizeOf: o.occupied, Limits: ledger.Limits{Lease: most, Total: most},
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
func (t *instance) release() error {
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
	if t.deletionLog != nil {
		t.deletionLog.close()
	}
	if t.set != nil {
		t.set.Close()
	}
	return err
}

// close ends run, waits for it, and closes the files. Calls after it return
// ErrClosed.
func (t *instance) close() error {
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
	} else { // fail the work that waited for run
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
func (t *instance) usable(ctx context.Context) error {
	select {
	case <-t.ended:
		return tier.ErrClosed
	default:
		return ctx.Err()
	}
}

func (t *instance) contains(ctx context.Context, ks []key.Key, have []bool) error {
	if err := t.usable(ctx); err != nil {
		return err
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
		known, err := t.unscanned(ctx, k)
		if err != nil {
			return err
		}
		have[i] = known != nil || t.has(k) // the scan may have brought it meanwhile, and ended
	}
	return nil
}

// unscanned is a record of k that recovery may not have come to; nil where there is none.
// Without anything to recover that is so at once. Entries
// that this process has stored are in the ledger; a record of its own that is not
// there is one of a Put under way, or of one that failed and is to be removed.
func (t *instance) unscanned(ctx context.Context, k key.Key) (*database.Entry, error) {
	if !t.scan.active.Load() || t.scan.isDeleted(k) {
		return nil, nil
	}
	e, err := ask(ctx, t, func() (*database.Entry, error) {
		e := new(database.Entry)
		if found, err := t.db.Entry(k, e); err != nil || !found || e.Seq >= t.commits.First {
			return nil, err
		}
		return e, nil
	})
	if e != nil {
		t.o.Ages.Found(k, expiryOf(e))
	}
	return e, err
}

func (t *instance) has(k key.Key) bool {
	_, state := t.ledger.Find(k)
	return state == ledger.Resident
}

func (t *instance) room(size uint32) int {
	if t.scan.active.Load() {
		return math.MaxInt
	}
	n := int64(max(size, 1))
	room := -t.headroom.excess(0, false) / extentBytes(n)
	if n <= t.o.InlineMax {
		room = -t.budget.short(0) / (filesWorth * metadata.HeldBytes(n, true))
	}
	return min(int(room), -t.headroom.excessEntries(0, false))
}

// devices are all there are, each once.
func (t *instance) devices() (list []*blockio.Device) {
	for _, v := range t.volumes {
		list = append(list, v.dev)
	}
	if t.metaDev != nil && !slices.Contains(list, t.metaDev) {
		list = append(list, t.metaDev)
	}
	return list
}

// opening is one Open.
type opening struct{ t *instance }

// openAll claims the folders and opens what lies there.
func (o opening) openAll() error {
	t := o.t
	set, dirs, missing, err := folders.Claim(t.o.Paths, t.o.Meta)
	t.set, t.missing = set, missing
	if err != nil {
		return err
	}
	o.logDamage(set, missing)
	garbled, err := t.o.Distrusted.Keep(set.Meta)
	if garbled != nil {
		t.log.Error().Err(garbled).Msg("not all distrusted spaces are known")
	}
	if err != nil {
		return err
	}
	if err := o.makeVolumes(dirs); err != nil {
		return err
	}
	if t.segments, err = openSegments(t.volumes, t.o.SegmentBytes, set.Epoch); err != nil {
		return err
	}
	if err := o.openStore(); err != nil {
		return err
	}
	t.budget = newBudget(&t.o, t.segments)
	t.headroom = &headroom{t}
	t.commits = metadata.NewCommitter(t.db, t.budget, set.Epoch)
	t.deleting.commits = t.commits
	t.deletionLog = newDeletionLog(set.Meta, t.o.IOTimeout)
	t.seal = database.NewSealer(set.Secret)
	if t.rebuilds, err = set.Meta.Exists(metadata.RebuildName); err != nil {
		return err
	}
	if t.unclean, err = o.beginUnclean(); err != nil {
		return err
	}
	empty, err := t.db.IsEmpty()
	if err != nil {
		return err
	}
	if empty {
		t.db.Succeeded() // nothing to read that could end the process
	}
	t.scan.active.Store(!empty || t.rebuilds || len(t.segments.all()) > 0)
	return t.lookAll()
}

// lastTimeout is how long an opening waits for the database's process of a daemon that was
// killed. Half of IOTimeout is the most: a start waits no longer than that for the tier.
const lastTimeout = 4 * time.Second

// openStore opens the database; a lock is its pulse unless there is another.
func (o opening) openStore() (err error) {
	t := o.t
	pulse := t.o.pulse
	if pulse == nil {
		pulse = t.set.Locks[0]
	}
	t.db, err = metadata.Open(metadata.Options{
		Meta: t.set.Meta, Headers: len(t.segments.all()) > 0, Pulse: pulse, ReserveBytes: t.o.MetaReserveBytes,
		Database: t.o.Database, Free: t.o.free,
		Patience: patience * t.o.IOTimeout, Await: min(lastTimeout, t.o.IOTimeout/2), Log: t.log,
	})
	return err
}

// logDamage logs the damaged files of the folders, and the missing folders.
func (o opening) logDamage(set *folders.Set, missing []string) {
	t := o.t
	for _, path := range set.Damaged {
		t.log.Error().Str("path", path).
			Msg("a file of the disk tier was gone or did not hold what it should; it is written anew, and what was there lies beside it as .damaged")
	}
	for _, dir := range missing {
		t.log.Error().Str("path", dir).
			Msg("a path of the disk tier is missing; what it has is forgotten. If its disk was replaced, give the path another name")
	}
}
