package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/fdstore"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/socket"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/remote"
	"github.com/kvstored/kvstored/tier"
)

// Daemon is everything one kvstored process runs, top to bottom.
type Daemon struct {
	cfg       config.Config
	log       zerolog.Logger
	lostLines func() uint64 // of the log; nil: it loses none
	main      endpoint      // of clients; like the next two without a Listener until it is made
	admin     endpoint
	pages     endpoint       // of metrics and health; off without a Listener
	from      *inheritance   // nil: it begins with nothing
	keeper    fdstore.Keeper // of memory and sockets; nil: none
	kept      atomic.Bool    // it has them
	guard     *guard
	lost      atomic.Pointer[error] // a socket that connects do not come to; nil: none
	short     atomic.Pointer[error] // why DRAM is not all there; nil: it is, or will be
	budget    *budget.Budget
	tiers
	store              *store.Store
	server             *server.Server
	fronts             fronts
	events             *index.Log        // nil: off
	sample             *explain.Recorder // nil: off
	epoch              uint64            // of this life
	metrics            *metrics
	started            time.Time
	populates, surveys pace
	health             health
	recent             recent
	reloads            *reloads
}

// Options are what a daemon is given beside its configuration.
type Options struct {
	Log zerolog.Logger
	// LostLines is how many lines of the log were lost; nil: none are.
	LostLines func() uint64
	File      string           // of the configuration, which a reload reads again; "": there was none
	Hangups   <-chan os.Signal // each asks for a reload; nil: never
	// Database opens the database of the disk tier; nil: a process is started for it.
	Database database.Opener
	// Touch faults a part of DRAM in; nil: arena.Touch does.
	Touch func(part []byte, huge bool) error
}

// New makes everything and starts nothing. On an error nothing is left.
func New(cfg config.Config, o Options) (d *Daemon, err error) {
	if o.Touch == nil {
		o.Touch = arena.Touch
	}
	keeper := findKeeper(&cfg, &o.Log)
	var from *inheritance
	if keeper != nil {
		if from, err = takeKept(keeper, &cfg, o.Touch, &o.Log); err != nil {
			return nil, errors.Join(err, keeper.Close())
		}
	}
	base.LogBroken(o.Log)
	d = &Daemon{cfg: cfg, log: o.Log, lostLines: o.LostLines, started: time.Now(), epoch: rand.Uint64(), from: from, keeper: keeper, tiers: tiers{database: o.Database, touch: o.Touch, memory: from.mem()}}
	d.reloads = newReloads(d, &o)
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	// The socket first: a daemon that serves it already owns the disk as well.
	d.main, err = from.listenUnix("listen.socket", cfg.Listen.Socket, cfg.Listen.Mode, cfg.Listen.Group)
	if err != nil {
		return d, err
	}
	stop, err := d.starting()
	if err != nil {
		return d, err
	}
	defer stop()
	d.admin, err = from.listenUnix("admin.socket", cfg.AdminSocket(), cfg.Admin.Mode, cfg.Admin.Group)
	if err != nil {
		return d, err
	}
	if err = d.listenPages(); err != nil {
		return d, err
	}
	if err = d.listenFronts(); err != nil {
		return d, err
	}
	d.makeEvents()
	d.makeBudget()
	if err = d.tiers.make(&d.cfg, d.log); err != nil {
		return d, err
	}
	d.metrics = newMetrics(d)
	d.makeStore()
	d.loadLearned()
	d.sample = newSample(d)
	d.guard = newGuard(d.manifest, from)
	d.makeServer()
	d.makeFronts()
	from.load(d)
	d.known = true
	keepMemory(d, false)
	from.drop(&d.log)
	return d, nil
}

// starting has clients told that the daemon is starting, until stop is called.
// Where it has its memory they wait instead: that does not take long.
func (d *Daemon) starting() (stop func(), err error) {
	if d.from.has() {
		return func() {}, nil
	}
	file, err := d.main.Listener.(*socket.Listener).File()
	if err != nil {
		return nil, fmt.Errorf("listen.socket: %w", err)
	}
	defer file.Close()
	l, err := net.FileListener(file) // on the same socket; the end of one does not end the other
	if err != nil {
		return nil, fmt.Errorf("listen.socket: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var answering sync.WaitGroup
	answering.Go(func() {
		if err := server.Starting(ctx, l, d.log); err != nil {
			d.log.Warn().Err(err).Msg("clients are not told that the daemon is starting")
		}
	})
	return func() {
		cancel()
		answering.Wait()
	}, nil
}

// writeModes are those of the configuration.
var writeModes = map[string]writeback.When{config.WriteThrough: writeback.AtCommit, config.WriteAuto: writeback.WhileRoom}

func (d *Daemon) makeStore() {
	o := store.Options{
		Hot: d.cpu, When: writeModes[d.cfg.Write.Mode],
		Settings: storeSettings(&d.cfg), Quotas: quotas(d.cfg.Spaces), Ages: d.ages, Distrusted: &d.distrusted, Events: d.events, Loaded: d.metrics.loaded, Log: d.log.With().Str("component", "store").Logger(),
	}
	if d.disk != nil { // a nil *disk.Tier would be a tier
		o.Below = append(o.Below, store.Below{
			Place: tier.Disk,
			Tier:  tier.WithBreaker(d.disk, tier.BreakerOptions{Observe: d.metrics.observer(tier.Disk), Log: o.Log}),
		})
	}
	if d.remote != nil {
		o.Below = append(o.Below, store.Below{
			Place: tier.Remote,
			Tier:  tier.WithBreaker(d.remote, tier.BreakerOptions{Observe: d.metrics.observer(tier.Remote), Log: o.Log}),
			Loads: tier.Limit{Loads: d.cfg.Remote.S3.Concurrency, Bytes: remote.FlightBytes},
		})
	}
	d.store = store.New(o)
}

func (d *Daemon) makeServer() {
	c := &d.cfg
	limits := limitsWithin(c.Limits, openFiles())
	o := server.Options{
		Memory: d.budget, Limits: server.Limits{
			StallTimeout: stallTimeout, Connections: limits.Connections, AdminConnections: config.AdminConnections,
			UIDConnections: limits.OfOneUser(), UIDJobs: uidJobs,
		},
		Store: d.store, Arena: d.arena,
		Settings: serverSettings(c), Met: d.guard.meet,
		Fronts:  map[key.SpaceID]string{resp.Space: config.FrontRESP}, // also where it is off: its values may still be stored
		Version: human.VersionText(), Epoch: d.epoch, Events: d.events,
		Stats:   d.statsJSON,
		Observe: d.metrics.observe, Ready: d.metrics.ready,
		Log: d.log.With().Str("component", "server").Logger(),
	}
	o.Asked, o.Stored = d.sample.Asked, d.sample.Stored
	d.server = server.New(o)
}

// Run serves until ctx ends or a part of the daemon fails, then writes all
// unwritten chunks, within stop.flush, and gives everything back. An error says which
// part failed, or hung until its time was over; the process must end then.
func (d *Daemon) Run(ctx context.Context) error {
	// Workers below the clients go on until the clients are gone and their
	// chunks are written.
	below, stopBelow := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopBelow(nil)
	workers, below := errgroup.WithContext(below)
	workers.Go(func() error { return d.store.Run(below) })
	workers.Go(func() error { return d.runLearned(below) })
	workers.Go(func() error { return d.budget.Run(below) })
	workers.Go(func() error { return d.sample.Run(below) })
	workers.Go(func() error { return d.from.prove(below, d) })
	workers.Go(func() error { return d.guard.run(below, d) })
	workers.Go(func() error { return d.guard.watch(below) })
	workers.Go(func() error { return watch(below, d) })
	if d.events != nil {
		workers.Go(func() error { return d.events.Run(below) })
	}
	d.tiers.run(below, workers)

	clients, serving := errgroup.WithContext(ctx)
	serving, stopServing := context.WithCancel(serving)
	defer stopServing()
	context.AfterFunc(below, stopServing) // a failed worker ends the daemon
	clients.Go(func() error { return d.populate(serving) })
	clients.Go(func() error { return d.progress(serving, progressInterval) })
	clients.Go(func() error { return d.server.Serve(serving, d.main.Listener) })
	api, board := d.views()
	clients.Go(func() error { return d.serveAdmin(serving, api) })
	clients.Go(func() error { return board.Run(serving) })
	pages := ""
	if d.pages.Listener != nil {
		pages = d.pages.Addr().String() // with the port that the kernel chose for 0
		clients.Go(func() error { return d.servePages(serving, board) })
	}
	d.fronts.serve(serving, clients, &d.log)
	clients.Go(func() error { return d.reloads.run(serving) })
	d.log.Info().Str("socket", d.cfg.Listen.Socket).Str("admin_socket", d.admin.path).Str("admin", pages).Msg("serving")
	<-serving.Done()
	return d.shutdown(clients, workers, below, func() { stopBelow(context.Canceled) })
}

// endpoints lists all that the daemon listens on.
func (d *Daemon) endpoints() (list []*endpoint) {
	for _, e := range []*endpoint{&d.main, &d.admin, &d.pages} {
		if e.Listener != nil {
			list = append(list, e)
		}
	}
	for i := range d.fronts.respAt {
		list = append(list, &d.fronts.respAt[i])
	}
	return list
}

// Close gives back all that New made. Run does that itself: it is for a daemon
// that is not run.
func (d *Daemon) Close() {
	fail := func(what string, err error) {
		if err != nil && !errors.Is(err, net.ErrClosed) {
			d.log.Error().Err(err).Msg("close " + what)
		}
	}
	for _, e := range d.endpoints() {
		fail(e.addr, e.close(d.kept.Load()))
	}
	if d.store != nil {
		d.store.Loader.Wait() // no client asks any more; loads under way end soon
	}
	d.tiers.close(fail)
	if d.keeper != nil {
		fail("the keeper", d.keeper.Close())
	}
}

// ready reports why the daemon does not know everything it has yet; nil when
// it does. It serves meanwhile.
func (d *Daemon) ready() error {
	if lost := d.lost.Load(); lost != nil {
		return *lost
	}
	if err := d.populating(); err != nil {
		return err
	}
	if !d.store.Recovery.Ready() {
		return errors.New(cmp.Or(d.surveyText(), "the disk tier is being scanned"))
	}
	return nil
}

// makeEvents makes the log of events, before the store that notes in it.
func (d *Daemon) makeEvents() {
	if d.cfg.Events.Enabled {
		d.events = index.NewLog(d.epoch, index.LogOptions{})
	}
}

const (
	// EndTimeout is how long the end of a daemon takes at most, the flush aside.
	EndTimeout = 5 * time.Second
	// clientsTimeout is how much of it is for clients: they lose their connections
	// after two seconds at most.
	clientsTimeout = 3 * time.Second
	// hangTimeout is how much of it is for a flush that does not keep to its time.
	hangTimeout = time.Second
)

// errTimeout is an end that something held up until its time was over.
var errTimeout = errors.New("it is abandoned, as by a kill; what was written is found again")

// shutdown lets go of the clients, flushes, and closes everything bottom-up. It is
// called when serving is over, by a signal or for a failure. It returns within
// EndTimeout and stop.flush also where a client's request, a device or the remote
// tier hangs: then not all is closed, and the process must end.
func (d *Daemon) shutdown(clients, workers *errgroup.Group, below context.Context, stopBelow func()) error {
	flushFor := d.reloads.running().Stop.Flush
	last := time.Now().Add(EndTimeout + flushFor)
	err := within(clientsTimeout, "clients' requests", clients.Wait)
	if below.Err() == nil {
		d.flush(below, flushFor)
	}
	if d.kept.Load() {
		d.store.Writers.Stay()
	}
	stopBelow()
	if errors.Is(err, errTimeout) {
		return err // what hangs may be in the memory that close takes away
	}
	werr := within(time.Until(last), "closing the tiers", func() error {
		defer d.Close()
		return workers.Wait()
	})
	if err == nil && !errors.Is(werr, context.Canceled) {
		err = werr
	}
	return err
}

// within is do's error, or errTimeout where do has not returned in time.
func within(limit time.Duration, what string, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return fmt.Errorf("stop: %s: not over within %v: %w", what, limit.Round(time.Millisecond), errTimeout)
	}
}

// flush writes the chunks that are in DRAM only, and logs the rest.
func (d *Daemon) flush(ctx context.Context, limit time.Duration) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan map[tier.Place]writeback.Left, 1)
	go func() { done <- d.store.Writers.FlushLast(ctx) }()
	var left map[tier.Place]writeback.Left
	select {
	case left = <-done:
	case <-time.After(limit + hangTimeout):
		d.log.Warn().Msg("stopping: the flush hangs; what it has not written is missed and computed again")
		return
	}
	if len(left) == 0 {
		d.log.Info().Stringer("took", time.Since(begun).Round(time.Millisecond)).Msg("flushed")
		return
	}
	for place, l := range left {
		says := "stopping: not everything was written; what is left is missed and computed again"
		if place == tier.Remote && d.disk != nil {
			says = "stopping: not everything is in the bucket; what is on disk is found again, and flush --remote uploads it"
		}
		d.log.Warn().AnErr("why", l.Err).Stringer("tier", place).Uint64("chunks", l.Chunks).Uint64("bytes", l.Bytes).
			Msg(says)
	}
}
