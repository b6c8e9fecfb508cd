package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/events"
	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/keep"
	"github.com/kvstored/kvstored/internal/sample"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/version"
	"github.com/kvstored/kvstored/tier"
)

// Daemon is everything one kvstored process runs, top to bottom.
type Daemon struct {
	cfg        config.Config
	log        zerolog.Logger
	main       endpoint // of clients; like the next without a Listener until it is made
	admin      endpoint
	from       *inheritance // nil: it begins with nothing
	keeper     keep.Keeper  // of the memory of DRAM; nil: none
	options    Options
	successors successors
	pages      net.Listener // of metrics and health; nil: off
	budget     *budget.Budget
	tiers
	stack   *stack.Stack
	server  *server.Server
	fronts  fronts
	events  *events.Log      // nil: off
	sample  *sample.Recorder // nil: off
	epoch   uint64
	metrics *metrics
	started time.Time
	reloads *reloads
}

// Options are what a daemon is given beside its configuration.
type Options struct {
	Log     zerolog.Logger
	File    string           // of the configuration, which a reload reads again; "": there was none
	Hangups <-chan os.Signal // each asks for a reload; nil: never
	// TakeOver has New go on where the daemon that runs ends, with its DRAM and its
	// sockets. That one goes on if Run is not called.
	TakeOver bool
	// Database opens the database of the disk tier; nil: a process is started for it.
	Database database.Opener
}

// New makes everything and starts nothing. On an error nothing is left.
func New(cfg config.Config, o Options) (d *Daemon, err error) {
	var from *inheritance
	if o.TakeOver {
		if from, err = takeOver(&cfg, &o.Log); err != nil {
			return nil, err
		}
	}
	keeper := findKeeper(&cfg, &o.Log)
	if keeper != nil && from == nil {
		if from, err = takeKept(keeper, &cfg, &o.Log); err != nil {
			return nil, errors.Join(err, keeper.Close())
		}
	}
	return newDaemon(cfg, o, from, keeper)
}

// newDaemon is New with what a daemon begins with, and what keeps its memory; either may
// be nil.
func newDaemon(cfg config.Config, o Options, from *inheritance, keeper keep.Keeper) (d *Daemon, err error) {
	d = &Daemon{cfg: cfg, log: o.Log, started: time.Now(), from: from, options: o, keeper: keeper, tiers: tiers{database: o.Database}}
	d.reloads = newReloads(d, &o)
	defer func() {
		if err != nil {
			d.close(err)
		}
	}()
	if from != nil {
		d.arena = from.arena
	}
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
	if err = d.successors.listen(d); err != nil {
		return d, err
	}
	if d.epoch, err = makeEpoch(); err != nil {
		return d, err
	}
	d.makeEvents()
	d.makeBudget()
	if err = d.tiers.make(&d.cfg, from, d.log); err != nil {
		return d, err
	}
	d.metrics = newMetrics(d)
	if err = d.makeStack(); err != nil {
		return d, err
	}
	d.loadLearned()
	d.sample = newSample(d)
	d.makeServer()
	d.makeFronts()
	from.load(d)
	if !from.pending() {
		keepMemory(d, from.handed())
	}
	return d, nil
}

// starting has clients told that the daemon is starting, until stop is called.
// Where it goes on for another one they wait instead: that one may still serve them.
func (d *Daemon) starting() (stop func(), err error) {
	if d.from.handed() {
		return func() {}, nil
	}
	file, err := d.main.Listener.(*net.UnixListener).File()
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

func (d *Daemon) makeStack() error {
	mode, err := stack.ParseWriteMode(d.cfg.Write.Mode)
	if err != nil {
		return fmt.Errorf("write.mode: %w", err)
	}
	o := stack.Options{
		Hot: d.cpu, Write: stack.WriteOptions{Mode: mode, MinHits: d.cfg.Write.MinHits},
		Settings: stackSettings(&d.cfg), Quotas: quotas(d.cfg.Spaces), Ages: d.ages, Events: d.events, Loaded: d.metrics.loaded, Log: d.log.With().Str("component", "stack").Logger(),
	}
	if d.disk != nil { // a nil *disk.Keeper would be a tier
		o.Below = append(o.Below, stack.Below{
			Place: tier.Disk,
			Tier:  tier.WithBreaker(tier.WithObserver(d.disk, d.metrics.observer(tier.Disk)), tier.BreakerOptions{Log: o.Log}),
		})
	}
	if d.remote != nil {
		o.Below = append(o.Below, stack.Below{
			Place: tier.Remote,
			Tier:  tier.WithBreaker(tier.WithObserver(d.remote, d.metrics.observer(tier.Remote)), tier.BreakerOptions{Log: o.Log}),
			Loads: fair.Limit{Loads: d.cfg.Remote.S3.Concurrency, Bytes: int64(d.cfg.Remote.S3.Flight)},
		})
	}
	d.stack = stack.NewStack(o)
	return nil
}

func (d *Daemon) makeServer() {
	c := &d.cfg
	limits := limitsWithin(c.Limits, openFiles())
	o := server.Options{
		Memory: d.budget, Limits: server.Limits{
			StallTimeout: c.Limits.Stall, Connections: limits.Connections, AdminConnections: config.AdminConnections,
			UIDConnections: limits.OfOneUser(), UIDJobs: c.Limits.UIDJobs,
		},
		Stack: d.stack, Arena: d.arena, Quarantine: d.quarantine, Direct: d.quarantine != nil,
		Settings: serverSettings(c), Spin: c.Arena.Spin, Fronts: frontSpaces(),
		Version: version.String(), Epoch: d.epoch, Events: d.events,
		Stats:   d.statsJSON,
		Observe: d.metrics.observe, Ready: d.metrics.ready,
		Log: d.log.With().Str("component", "server").Logger(),
	}
	if d.sample != nil {
		o.Asked, o.Stored = d.sample.Asked, d.sample.Stored
	}
	d.server = server.New(o)
}

// Run serves until ctx ends or a part of the daemon fails, then writes all
// unwritten chunks, within stop.flush, and gives everything back. An error says which
// part failed, or hung until its time was over; the process must end then.
//
// A daemon that has handed over to a successor ends without an error. Where the
// successor fails, Run goes on with all that was handed over, as another Daemon.
func (d *Daemon) Run(ctx context.Context) error {
	if err := d.commit(ctx); err != nil {
		d.close(err)
		return err
	}
	for d != nil {
		var err error
		if d, err = d.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// commit makes the memory and the sockets of a predecessor this daemon's, if there is one.
func (d *Daemon) commit(ctx context.Context) error {
	if !d.from.pending() {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	var uses []string
	for _, e := range d.endpoints() {
		uses = append(uses, e.addr)
	}
	if err := d.from.from.await(uses); err != nil {
		return err
	}
	// The predecessor makes its manifest void when this one serves. A kill at any moment leaves
	// the keeper with one that is right: nothing changes DRAM in between.
	keepMemory(d, true)
	d.from.from.serving()
	d.from.from = nil
	d.from.close()
	return nil
}

// endpoints lists all that the daemon listens on.
func (d *Daemon) endpoints() (list []endpoint) {
	list = append(list, d.main, d.admin, d.successors.at)
	if d.pages != nil {
		list = append(list, endpoint{Listener: d.pages, addr: d.cfg.Admin.Listen})
	}
	list = append(list, d.fronts.respAt...)
	return list
}

// run is Run of one life; next is the daemon that goes on, or nil.
func (d *Daemon) run(ctx context.Context) (next *Daemon, err error) {
	// Workers below the clients go on until the clients are gone and their
	// chunks are written.
	below, stopBelow := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopBelow(nil)
	workers, below := errgroup.WithContext(below)
	workers.Go(func() error { return d.stack.Run(below) })
	workers.Go(func() error { return d.runLearned(below) })
	workers.Go(func() error { return d.budget.Run(below) })
	if d.sample != nil {
		workers.Go(func() error { return d.sample.Run(below) })
	}
	workers.Go(func() error { return d.from.prove(below, d) })
	workers.Go(func() error { return watchKeeper(below, d) })
	if d.events != nil {
		workers.Go(func() error { return d.events.Run(below, d.stack.Announce) })
	}
	d.tiers.run(below, workers)

	clients, serving := errgroup.WithContext(ctx)
	serving, stopServing := context.WithCancel(serving)
	defer stopServing()
	context.AfterFunc(below, stopServing) // a failed worker ends the daemon
	clients.Go(func() error { return d.server.Serve(serving, d.main.Listener.(*net.UnixListener)) })
	api, board := d.views()
	clients.Go(func() error { return d.serveAdmin(serving, api) })
	clients.Go(func() error { return board.Run(serving) })
	pages := ""
	if d.pages != nil {
		pages = d.pages.Addr().String() // with the port that the kernel chose for 0
		clients.Go(func() error { return d.servePages(serving, board) })
	}
	d.fronts.serve(serving, clients, &d.log)
	clients.Go(func() error { return d.reloads.run(serving) })
	clients.Go(func() error { return d.successors.serve(serving, d) })
	d.log.Info().Str("socket", d.cfg.Listen.Socket).Str("admin_socket", d.admin.path).Str("admin", pages).Msg("serving")
	stop := func() { stopBelow(context.Canceled) }
	select {
	case <-serving.Done():
		return nil, d.shutdown(clients, workers, below, stop)
	case next := <-d.successors.ready:
		return next.handOver(d, clients, workers, stopServing, stop)
	}
}

// Close gives back all that New made. Run does that itself: it is for a daemon
// that is not run.
func (d *Daemon) Close() { d.close(errors.New("it was not run")) }

// close is Close, and tells the predecessor why, if there is one that waits.
func (d *Daemon) close(why error) {
	defer d.from.fail(why)
	fail := func(what string, err error) {
		if err != nil && !errors.Is(err, net.ErrClosed) {
			d.log.Error().Err(err).Msg("close " + what)
		}
	}
	for what, e := range map[string]*endpoint{"socket": &d.main, "admin socket": &d.admin, "socket of upgrades": &d.successors.at} {
		if e.Listener != nil {
			fail(what, e.Close())
			fail(what, e.remove())
		}
	}
	d.fronts.close(fail)
	if d.stack != nil {
		d.stack.Wait() // no client asks any more; loads under way end soon
	}
	if d.pages != nil {
		fail("admin listener", d.pages.Close())
	}
	d.tiers.close(fail)
	if d.keeper != nil {
		fail("the keeper", d.keeper.Close())
	}
}

// ready reports why the daemon does not know everything it has yet; nil when
// it does. It serves meanwhile.
func (d *Daemon) ready() error {
	if !d.stack.Ready() {
		return errors.New("the disk tier is being scanned")
	}
	return nil
}
