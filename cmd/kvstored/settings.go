package main

import (
	"os"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// What the keys that a reload applies mean to the daemon's parts: newDaemon
// makes the parts with it, apply changes it.

// apply has the daemon run with p.Next from now on. It cannot fail: what can was
// done to prepare p.
func (d *daemon) apply(running *config.Config, p *prepared) {
	c := &p.Next
	setLevel(c.Log.Level)
	d.server.Set(serverSettings(c))
	d.setFronts(c, p.password)
	d.cpu.SetWatermarks(c.CPU.HighWatermark, c.CPU.LowWatermark)
	d.cpu.Ledger().SetLimits(d.limits(c))
	if d.disk != nil {
		d.disk.Set(diskSettings(&c.Disk))
	}
	d.stack.Set(stackSettings(c))
	if c.CPU.Policy != running.CPU.Policy {
		d.setPolicy(tier.CPU, c.CPU.Policy)
	}
	if d.disk != nil && c.Disk.Policy != running.Disk.Policy {
		d.setPolicy(tier.Disk, c.Disk.Policy)
	}
}

// setPolicy replaces a tier's policy by another that the configuration may name.
func (d *daemon) setPolicy(p tier.Place, name string) {
	if err := d.stack.SetPolicy(p, name); err != nil { // of no policy that passed the checks
		d.log.Error().Err(err).Stringer("tier", p).Msg("the policy stays")
	}
}

// present is c with the policies that the tiers have now.
func (d *daemon) present(c config.Config) config.Config {
	if name, ok := d.stack.PolicyOf(tier.CPU); ok {
		c.CPU.Policy = name
	}
	if name, ok := d.stack.PolicyOf(tier.Disk); ok {
		c.Disk.Policy = name
	}
	return c
}

// setLevel has every logger of the process keep to a level.
func setLevel(name string) {
	if level, err := zerolog.ParseLevel(name); err == nil { // the configuration was checked
		zerolog.SetGlobalLevel(level)
	}
}

// limits are the shares of DRAM that may be protected.
func (d *daemon) limits(c *config.Config) ledger.Limits {
	capacity := d.arena.Stats().CapacityBytes
	share := func(s float64) int64 { return int64(s * float64(capacity)) }
	return ledger.Limits{
		Lease: share(c.Budget.Leases), Pin: share(c.Budget.Pins), Load: share(c.Budget.Loads),
		Unwritten: min(share(c.Budget.Unwritten), int64(c.Write.Queue)),
		Total:     share(config.MaxProtected),
	}
}

func diskSettings(c *config.Disk) disk.Settings {
	return disk.Settings{MinFreeBytes: int64(c.MinFree), HighWatermark: c.HighWatermark, LowWatermark: c.LowWatermark}
}

func stackSettings(c *config.Config) tier.Settings {
	return tier.Settings{
		VerifyHits: c.Arena.VerifyHits, ScrubBytesPerSecond: int64(c.Disk.ScrubRate), DiskBytesPerDay: int64(c.Disk.WriteBudget),
	}
}

func serverSettings(c *config.Config) server.Settings {
	policies := map[string]wire.WaitPolicy{
		config.PrefetchBestEffort:   wire.PolicyBestEffort,
		config.PrefetchWaitComplete: wire.PolicyWaitComplete,
		config.PrefetchTimeout:      wire.PolicyTimeout,
	}
	return server.Settings{
		Access:      c.Policy(uint32(os.Getuid())),
		LeaseMaxAge: c.Lease.MaxAge, PinMaxAge: c.Pin.MaxAge,
		Prefetch: server.Prefetch{
			Policy: policies[c.Prefetch.Policy], Deadline: c.Prefetch.Deadline,
			Per1024Tokens: c.Prefetch.Per1024Tokens, WindowBytes: int64(c.Prefetch.Window),
			NextTurnBytes: int64(c.Prefetch.NextTurn),
		},
		ChunkTokens: c.Chunk.Tokens, Method: c.Chunk.Hash, SaveUnfull: c.Chunk.SaveUnfull,
	}
}

func respSettings(c *config.Listen, password string) resp.Settings {
	return resp.Settings{Password: password, Flush: c.RESPFlush, Errors: c.RESPFull == config.RESPFullError}
}

// setFronts is apply for the front ends. The server has the user ids already.
func (d *daemon) setFronts(c *config.Config, password string) {
	f := &d.fronts
	for _, s := range f.stores {
		s.SetLoadTimeout(c.Prefetch.Deadline)
	}
	if f.resp != nil {
		f.resp.Set(respSettings(&c.Listen, password))
		f.resp.Recheck()
	}
	if f.lm != nil {
		f.lm.Recheck()
	}
}
