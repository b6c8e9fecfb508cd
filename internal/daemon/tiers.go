package daemon

import (
	"context"
	"fmt"
	"os"

	"github.com/rs/zerolog"
	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/remote"
)

// tiers are the tiers of a daemon, and the memory that they and clients share.
type tiers struct {
	memory
	known      bool // all that was left in DRAM is known again
	cpu        *cpu.Tier
	disk       *disk.Tier       // nil: no disk tier
	remote     *remote.Tier     // nil: no remote tier
	ages       *stale.Book      // that all of them keep to
	distrusted stale.Distrusted // that disk keeps
	database   database.Opener  // of disk; nil: a process is started for it
	touch      touchFunc        // of DRAM
}

// make makes all that the configuration names, and starts nothing. Beside an
// error, close gives back the tiers made so far.
func (t *tiers) make(c *config.Config, log zerolog.Logger) error {
	t.ages = stale.New()
	if err := t.makeArena(c, &log); err != nil {
		return err
	}
	if err := t.makeManifest(c); err != nil {
		return err
	}
	plan, _ := MemoryPlan(c, true)
	if err := t.makeCPU(c, int(plan.Number)); err != nil {
		return err
	}
	if err := t.makeDisk(c, int(plan.Number), log); err != nil {
		return err
	}
	return t.makeRemote(c, log)
}

// touchFunc faults a part of DRAM in; see arena.Options.
type touchFunc = func(part []byte, huge bool) error

func arenaOptions(c *config.Config, touch touchFunc) arena.Options {
	return arena.Options{
		CapacityBytes: int64(c.CPU.Capacity), HugePages: c.CPU.HugePages, Mlock: c.CPU.MLock, Touch: touch, Keep: c.CPU.Keep,
	}
}

func (t *tiers) makeArena(c *config.Config, log *zerolog.Logger) (err error) {
	if t.arena == nil {
		if t.arena, err = arena.New(arenaOptions(c, t.touch)); err != nil {
			return fmt.Errorf("cpu.capacity: %w", err)
		}
	}
	logArena(log, t.arena, "DRAM begins")
	return err
}

func logArena(log *zerolog.Logger, a *arena.Arena, what string) {
	st := a.Stats()
	log.Info().Stringer("capacity", config.Bytes(st.CapacityBytes)).Stringer("populated", config.Bytes(st.PopulatedBytes)).
		Stringer("huge", config.Bytes(st.HugeBytes)).Bool("locked", st.Locked).Msg(what)
}

func (t *tiers) makeManifest(c *config.Config) (err error) {
	if c.CPU.Keep && t.manifest == nil {
		t.manifest, err = cpu.NewManifest(t.arena.Stats().CapacityBytes)
	}
	if t.manifest != nil {
		t.arena.NoteFrees(t.manifest.Clear)
	}
	return err
}

func (t *tiers) makeCPU(c *config.Config, chunks int) error {
	capacity := t.arena.Stats().CapacityBytes
	p, err := policy.New(c.CPU.Policy, capacity)
	if err != nil {
		return fmt.Errorf("cpu.policy: %w", err)
	}
	t.cpu = cpu.New(cpu.Options{
		Arena: t.arena,
		Ledger: ledger.New(ledger.Options{
			CapacityBytes: capacity, Entries: chunks, Policy: p, PolicyName: c.CPU.Policy, Quotas: ledgerQuotas(c.Spaces), DeferTraining: true,
			Limits: LimitsOfDRAM(capacity),
		}),
		Manifest: t.manifest,
		HasTTL:   func(k key.Key) bool { return t.ages.Of(k).HasTTL() },
	})
	return nil
}

func (t *tiers) makeDisk(c *config.Config, chunks int, log zerolog.Logger) (err error) {
	if !c.Disk.Enabled() {
		return nil
	}
	o := diskOptions(&c.Disk, log)
	o.Entries, o.Ages, o.Distrusted = chunks, t.ages, &t.distrusted
	o.Quotas, o.DeferTraining, o.Database = ledgerQuotas(c.Spaces), true, t.database
	t.disk, err = disk.Open(o)
	return err // it says disk
}

// inlineMax is the largest payload that lies in the database: in a segment it would take
// 8 KiB, and a read of the device. bench/disk has measured where segments are faster.
const inlineMax = 2 << 10

func diskOptions(c *config.Disk, log zerolog.Logger) disk.Options {
	return disk.Options{
		Paths: c.Paths, Meta: c.MetaPath(),
		CapacityBytes: int64(c.Capacity), MinFreeBytes: int64(c.MinFree), Policy: c.Policy,
		InlineMax: inlineMax,
		Log:       log,
	}
}

func (t *tiers) makeRemote(c *config.Config, log zerolog.Logger) (err error) {
	if c.Remote.S3.Enabled() {
		o := remoteOptions(&c.Remote.S3, log)
		o.Ages, o.ID = t.ages, idOf(c.Listen.Socket)
		t.remote, err = remote.New(o)
	}
	return err
}

// idOf tells a daemon from others that share its bucket, over its restarts.
func idOf(socket string) string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%016x", xxh3.HashString(host+"\x00"+socket))
}

func remoteOptions(c *config.S3, log zerolog.Logger) remote.Options {
	return remote.Options{
		Bucket: c.Bucket, Prefix: c.Prefix, Endpoint: c.Endpoint, Region: c.Region, PathStyle: c.PathStyle, Profile: c.Profile,
		Concurrency: c.Concurrency, Timeout: c.Timeout, TTL: c.TTL, List: c.List,
		Log: log.With().Str("component", "remote").Logger(),
	}
}

// run adds the tiers' own work to a group until ctx ends.
func (t *tiers) run(ctx context.Context, g *errgroup.Group) {
	if t.disk != nil {
		g.Go(func() error { return t.disk.Run(ctx) })
	}
	if t.remote != nil {
		g.Go(func() error { return t.remote.Run(ctx) })
	}
}

// close closes the tiers that were made, far ones first.
func (t *tiers) close(fail func(string, error)) {
	if t.remote != nil {
		fail("remote tier", t.remote.Close())
	}
	if t.disk != nil {
		fail("disk tier", t.disk.Close())
	}
	if t.known && t.manifest != nil {
		fail("manifest", cpu.Leave(t.cpu))
	}
	t.manifest.Finish() // what is in DRAM stays there for the next process
	if t.cpu != nil {
		fail("cpu tier", t.cpu.Close())
	}
	if t.arena != nil {
		fail("arena", t.arena.Close())
	}
	fail("manifest", t.manifest.Close())
}
