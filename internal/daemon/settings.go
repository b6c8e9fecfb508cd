package daemon

import (
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// settings is all that a reload changes, as the daemon's parts know it. New
// makes the parts with the same.
type settings struct {
	level       string // of the log
	server      server.Settings
	resp        resp.Settings
	loadTimeout time.Duration // of a front end's read
	minFree     int64         // of the disk
	store       store.Settings
	quotas      []store.Quota
	policies    map[tier.Place]string
}

// settingsOf is what a configuration says. password is what stands in
// listen.resp_password_file.
func settingsOf(c *config.Config, password string) settings {
	return settings{
		level: c.Log.Level, server: serverSettings(c), resp: respSettings(&c.Listen, password), loadTimeout: c.Prefetch.Deadline,
		minFree: int64(c.Disk.MinFree), store: storeSettings(c), quotas: quotas(c.Spaces),
		policies: map[tier.Place]string{tier.CPU: c.CPU.Policy, tier.Disk: c.Disk.Policy},
	}
}

// apply has the daemon run with other settings from now on. It cannot fail: what
// can was done to prepare them.
func (d *Daemon) apply(s *settings) {
	SetLogLevel(s.level)
	d.server.Set(s.server)
	d.fronts.apply(s)
	if d.disk != nil {
		d.disk.SetMinFree(s.minFree)
	}
	d.store.Operator.Set(s.store)
	if err := d.store.Operator.SetQuotas(s.quotas, d.server.Models); err != nil { // of a policy that is in use
		d.log.Error().Err(err).Msg("the quotas stay")
	}
	for p, name := range s.policies {
		if now, ok := d.store.Operator.PolicyOf(p); !ok || now == name {
			continue
		}
		if err := d.store.Operator.SetPolicy(p, name); err != nil { // of no policy that passed the checks
			d.log.Error().Err(err).Stringer("tier", p).Msg("the policy stays")
		}
	}
}

// withPolicies is c with the policies that the tiers have now.
func (d *Daemon) withPolicies(c config.Config) config.Config {
	if name, ok := d.store.Operator.PolicyOf(tier.CPU); ok {
		c.CPU.Policy = name
	}
	if name, ok := d.store.Operator.PolicyOf(tier.Disk); ok {
		c.Disk.Policy = name
	}
	return c
}

// SetLogLevel has every logger of the process keep to a level.
func SetLogLevel(name string) {
	if level, err := zerolog.ParseLevel(name); err == nil { // the configuration was checked
		zerolog.SetGlobalLevel(level)
	}
}

// Rules are what the checks of a configuration must know beside the file: if
// here, also how much memory this machine has.
func Rules(here bool) (rules config.Rules, err error) {
	rules = config.Rules{UID: os.Geteuid()}
	if !here {
		return rules, nil
	}
	rules.MemoryBytes, rules.MemoryFrom, err = arena.MemoryLimit()
	if err != nil {
		return rules, fmt.Errorf("how much memory there is: %w", err)
	}
	return rules, nil
}

// mostUnwritten is how many bytes may wait for the disk; beyond them chunks stay in DRAM.
const mostUnwritten = 1 << 30

// LimitsOfDRAM are the shares of an arena of so many bytes that may be protected. The rest
// of Total can always be evicted, so that puts go on.
func LimitsOfDRAM(arenaBytes int64) ledger.Limits {
	tenth := arenaBytes / 10
	return ledger.Limits{Lease: 4 * tenth, Pin: 2 * tenth, Load: 2 * tenth, Unwritten: min(2*tenth, mostUnwritten), Total: 8 * tenth}
}

// quotas are those of spaces, in their order.
func quotas(spaces []config.Space) (qs []store.Quota) {
	for _, s := range spaces {
		qs = append(qs, store.Quota{Match: s.Match, Bytes: int64(s.Quota), MaxAge: s.MaxAge, PrefillDepth: s.PrefillDepth})
	}
	return qs
}

// ledgerQuotas are the same for a tier.
func ledgerQuotas(spaces []config.Space) (qs []ledger.Quota) {
	for _, q := range store.Bounded(quotas(spaces)) {
		qs = append(qs, ledger.Quota{Bytes: q.Bytes})
	}
	return qs
}

// verifyHits is how many hits in DRAM there are to one that is hashed again first.
const verifyHits = 256

func storeSettings(c *config.Config) store.Settings {
	return store.Settings{
		VerifyHits: verifyHits, ScrubBytesPerSecond: int64(c.Disk.ScrubRate), DiskBytesPerDay: int64(c.Disk.WriteBudget),
		UnsafeAge: c.Write.UnsafeAge,
	}
}

// What clients may ask for at most, where no key says it.
const (
	pinMaxAge    = 5 * time.Minute
	retainMost   = 30 * 24 * time.Hour
	windowBytes  = 256 << 20 // read at once for one prompt
	stallTimeout = 30 * time.Second
	uidJobs      = 16 << 10 // prefetches and reservations of one user
)

func serverSettings(c *config.Config) server.Settings {
	policies := map[string]wire.WaitPolicy{
		config.PrefetchBestEffort:   wire.PolicyBestEffort,
		config.PrefetchWaitComplete: wire.PolicyWaitComplete,
		config.PrefetchTimeout:      wire.PolicyTimeout,
	}
	total, uid := c.Retained()
	return server.Settings{
		Retain:      hint.ClaimLimits{TotalBytes: total, UserBytes: uid, Duration: retainMost},
		Access:      c.Policy(uint32(os.Getuid())),
		LeaseMaxAge: c.Lease.MaxAge, PinMaxAge: pinMaxAge,
		Prefetch: server.Prefetch{
			Policy: policies[c.Prefetch.Policy], Deadline: c.Prefetch.Deadline,
			Per1024Tokens: c.Prefetch.Per1024Tokens, WindowBytes: windowBytes,
		},
		ChunkTokens: c.Chunk.Tokens, Method: c.Chunk.Hash, SaveUnfull: c.Chunk.SaveUnfull,
	}
}

func respSettings(c *config.Listen, password string) resp.Settings {
	return resp.Settings{Password: password, Errors: c.RESPFull == config.RESPFullError}
}
