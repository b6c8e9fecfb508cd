package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/remote"
	"github.com/kvstored/kvstored/tier"
)

// daemon is everything one kvstored process runs, top to bottom.
type daemon struct {
	cfg        config.Config
	log        zerolog.Logger
	listener   *net.UnixListener
	socket     os.FileInfo  // of the listener, to remove no other's
	admin      net.Listener // nil: no admin listener
	budget     *budget.Budget
	arena      *arena.Arena
	quarantine *arena.Quarantine // with direct puts; otherwise nil
	cpu        *cpu.Tier
	disk       *disk.Keeper // nil: no disk tier
	remote     *remote.Tier // nil: no remote tier
	stack      *tier.Stack
	server     *server.Server
	fronts     fronts
	metrics    *metrics
	started    time.Time
	reloads    *reloads
}

// newDaemon makes everything and starts nothing. On an error nothing is left.
func newDaemon(cfg config.Config, log zerolog.Logger) (d *daemon, err error) {
	d = &daemon{cfg: cfg, log: log, started: time.Now()}
	d.reloads = newReloads(d)
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	// The socket first: whoever serves it already owns the disk as well.
	d.listener, err = server.Listen(cfg.Listen.Socket, cfg.Listen.Mode, cfg.Listen.Group)
	if err != nil {
		return d, err
	}
	if d.socket, err = os.Lstat(cfg.Listen.Socket); err != nil {
		return d, err
	}
	if err = d.listenAdmin(); err != nil {
		return d, err
	}
	if err = d.listenFronts(); err != nil {
		return d, err
	}
	d.makeBudget()
	if err = d.makeArena(); err != nil {
		return d, err
	}
	if err = d.makeCPU(); err != nil {
		return d, err
	}
	if err = d.makeDisk(); err != nil {
		return d, err
	}
	if err = d.makeRemote(); err != nil {
		return d, err
	}
	d.metrics = newMetrics(d)
	if err = d.makeStack(); err != nil {
		return d, err
	}
	d.recall()
	if err = d.makeServer(); err != nil {
		return d, err
	}
	return d, d.makeFronts()
}

func (d *daemon) makeArena() (err error) {
	c := &d.cfg
	direct := c.Arena.Puts == config.PutsDirect
	d.log.Info().Stringer("capacity", c.CPU.Capacity).Msg("taking the memory of the arena")
	d.arena, err = arena.New(arena.Options{
		CapacityBytes: int64(c.CPU.Capacity), Direct: direct,
		HugePages: c.CPU.HugePages, Mlock: c.CPU.MLock, Touch: true,
	})
	if err != nil {
		return fmt.Errorf("cpu.capacity: %w", err)
	}
	if direct {
		d.quarantine, err = arena.NewQuarantine()
	}
	st := d.arena.Stats()
	d.log.Info().Int64("bytes", st.CapacityBytes).Int64("huge_bytes", st.HugeBytes).Bool("locked", st.Locked).Msg("arena ready")
	return err
}

func (d *daemon) makeCPU() error {
	c, capacity := &d.cfg, d.arena.Stats().CapacityBytes
	p, err := policy.New(c.CPU.Policy, capacity)
	if err != nil {
		return fmt.Errorf("cpu.policy: %w", err)
	}
	d.cpu = cpu.New(cpu.Options{
		Arena: d.arena,
		Ledger: ledger.New(ledger.Options{
			CapacityBytes: capacity, Policy: p, PolicyName: c.CPU.Policy, Quotas: ledgerQuotas(c.Spaces), LearnLater: true,
			Limits: limitsOfDRAM(c, capacity),
		}),
		HighWatermark: c.CPU.HighWatermark, LowWatermark: c.CPU.LowWatermark,
	})
	return nil
}

func (d *daemon) makeDisk() (err error) {
	c := &d.cfg.Disk
	if !c.Enabled() {
		return nil
	}
	o := diskOptions(c, d.log)
	o.Quotas, o.LearnLater = ledgerQuotas(d.cfg.Spaces), true
	d.disk, err = disk.Keep(o)
	return err // it says disk
}

func diskOptions(c *config.Disk, log zerolog.Logger) disk.Options {
	return disk.Options{
		Paths: c.Paths, Meta: c.MetaPath(),
		CapacityBytes: int64(c.Capacity), MinFreeBytes: int64(c.MinFree), Policy: c.Policy,
		HighWatermark: c.HighWatermark, LowWatermark: c.LowWatermark,
		InlineMax: int64(c.InlineMax), SegmentBytes: int64(c.SegmentSize), IOTimeout: c.IOTimeout, IODepth: c.IODepth,
		Log: log,
	}
}

func (d *daemon) makeRemote() (err error) {
	if d.cfg.Remote.S3.Enabled() {
		d.remote, err = remote.New(remoteOptions(&d.cfg.Remote.S3, d.log))
	}
	return err
}

func remoteOptions(c *config.S3, log zerolog.Logger) remote.Options {
	return remote.Options{
		Bucket: c.Bucket, Prefix: c.Prefix, Endpoint: c.Endpoint, Region: c.Region, PathStyle: c.PathStyle, Profile: c.Profile,
		Concurrency: c.Concurrency, FlightBytes: int64(c.Flight), Timeout: c.Timeout, TTL: c.TTL, List: c.List,
		Log: log.With().Str("component", "remote").Logger(),
	}
}

func (d *daemon) makeStack() error {
	mode, err := tier.ParseWriteMode(d.cfg.Write.Mode)
	if err != nil {
		return fmt.Errorf("write.mode: %w", err)
	}
	o := tier.Options{
		Hot: d.cpu, Write: tier.WriteOptions{Mode: mode, MinHits: d.cfg.Write.MinHits},
		Settings: stackSettings(&d.cfg), Quotas: quotas(d.cfg.Spaces), Log: d.log.With().Str("component", "stack").Logger(),
	}
	if d.disk != nil { // a nil *disk.Keeper would be a tier
		o.Disk = tier.WithBreaker(tier.WithObserver(d.disk, d.metrics.observer(tier.Disk)), tier.BreakerOptions{Log: o.Log})
	}
	if d.remote != nil {
		o.Remote = tier.WithBreaker(tier.WithObserver(d.remote, d.metrics.observer(tier.Remote)), tier.BreakerOptions{Log: o.Log})
		o.Loads[tier.Remote] = fair.Limit{Loads: d.cfg.Remote.S3.Concurrency, Bytes: int64(d.cfg.Remote.S3.Flight)}
	}
	d.stack = tier.NewStack(o)
	return nil
}

func (d *daemon) makeServer() error {
	c := &d.cfg
	var epoch [8]byte
	if _, err := rand.Read(epoch[:]); err != nil {
		return fmt.Errorf("epoch: %w", err)
	}
	d.server = server.New(server.Options{
		Memory: d.budget, Limits: server.Limits{
			StallTimeout: c.Limits.Stall, Connections: c.Limits.Connections, AdminConnections: config.AdminConnections,
			UIDConnections: c.Limits.OfOneUser(), UIDJobs: c.Limits.UIDJobs,
		},
		Stack: d.stack, Arena: d.arena, Quarantine: d.quarantine, Direct: d.quarantine != nil,
		Settings: serverSettings(c), Spin: c.Arena.Spin, Fronts: frontSpaces(),
		Version: version(), Epoch: binary.LittleEndian.Uint64(epoch[:]),
		Stats:   d.statsJSON,
		Observe: d.metrics.observe,
		Log:     d.log.With().Str("component", "server").Logger(),
	})
	return nil
}

// run serves until ctx ends; end does the rest.
func (d *daemon) run(ctx context.Context) error {
	// What works below the clients goes on until they are gone and what they
	// stored is written.
	below, stopBelow := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopBelow(nil)
	workers, below := errgroup.WithContext(below)
	workers.Go(func() error { return d.stack.Run(below) })
	workers.Go(func() error { return d.keepLearned(below) })
	workers.Go(func() error { return d.budget.Run(below) })
	if d.disk != nil {
		workers.Go(func() error { return d.disk.Run(below) })
	}
	if d.remote != nil {
		workers.Go(func() error { return d.remote.Run(below) })
	}
	if d.quarantine != nil {
		workers.Go(func() error { return d.quarantine.Run(below) })
	}

	clients, serving := errgroup.WithContext(ctx)
	serving, stopServing := context.WithCancel(serving)
	defer stopServing()
	context.AfterFunc(below, stopServing) // a failed worker ends the daemon
	clients.Go(func() error { return d.server.Serve(serving, d.listener) })
	admin := ""
	if d.admin != nil {
		admin = d.admin.Addr().String() // with the port that the kernel chose for 0
		clients.Go(func() error { return d.serveAdmin(serving) })
	}
	d.serveFronts(serving, clients)
	clients.Go(func() error { return d.reloads.run(serving) })
	d.log.Info().Str("socket", d.cfg.Listen.Socket).Str("admin", admin).Msg("serving")
	<-serving.Done()
	return d.end(clients, workers, below, func() { stopBelow(context.Canceled) })
}

func (d *daemon) close() {
	fail := func(what string, err error) {
		if err != nil && !errors.Is(err, net.ErrClosed) {
			d.log.Error().Err(err).Msg("close " + what)
		}
	}
	if d.listener != nil {
		fail("socket", d.listener.Close())
		fail("socket", server.Unlisten(d.cfg.Listen.Socket, d.socket))
	}
	d.closeFronts(fail)
	if d.stack != nil {
		d.stack.Wait() // nobody asks any more; what was asked for ends soon
	}
	if d.admin != nil {
		fail("admin listener", d.admin.Close())
	}
	if d.remote != nil {
		fail("remote tier", d.remote.Close())
	}
	if d.disk != nil {
		fail("disk tier", d.disk.Close())
	}
	if d.cpu != nil {
		fail("cpu tier", d.cpu.Close())
	}
	if d.quarantine != nil {
		fail("quarantine", d.quarantine.Close())
	}
	if d.arena != nil {
		fail("arena", d.arena.Close())
	}
}

// ready reports why the daemon does not know everything it has yet; nil when
// it does. It serves meanwhile.
func (d *daemon) ready() error {
	if !d.stack.Ready() {
		return errors.New("the disk tier is being scanned")
	}
	return nil
}
