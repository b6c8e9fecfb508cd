package daemon

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/boundary"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/events"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/missing"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/version"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// Stats is what `kvstored stats` shows; field names are stable.
type Stats struct {
	Version       string        `json:"version"`
	UptimeSeconds float64       `json:"uptime_seconds"`
	Health        string        `json:"health"` // ready, or what is wrong, why and since when
	Config        admin.Config  `json:"config"`
	Arena         ArenaStats    `json:"arena"`
	Memory        budget.Stats  `json:"memory"` // of clients, outside the arena
	Server        server.Stats  `json:"server"`
	Store         StoreStats    `json:"store"`
	Advice        string        `json:"advice"`         // one sentence: what was missed, and what would have helped; "" while nothing was asked
	RESP          *resp.Stats   `json:"resp,omitempty"` // of front ends that are on
	Events        *events.Stats `json:"events,omitempty"`
}

// ArenaStats are the numbers of the memory that clients map.
type ArenaStats struct {
	CapacityBytes    int64 `json:"capacity_bytes"`
	PopulatedBytes   int64 `json:"populated_bytes"` // of the capacity; only these are used
	UsedBytes        int64 `json:"used_bytes"`
	LargestFreeBytes int64 `json:"largest_free_bytes"`
	Blocks           int64 `json:"blocks"`
	HugeBytes        int64 `json:"huge_bytes"`
	Locked           bool  `json:"locked"`
}

// StoreStats are the numbers of the store: index, tiers and the work between them.
type StoreStats struct {
	Recovering     bool                         `json:"recovering"`
	RecoverFailed  uint64                       `json:"recover_failed"` // scans of the disk tier
	Chunks         int64                        `json:"chunks"`
	Placeholders   int64                        `json:"placeholders"`
	IndexBytes     int64                        `json:"index_bytes"`
	ProtectedBytes int64                        `json:"protected_bytes"`
	ClassBytes     map[string]int64             `json:"class_bytes"`
	Inconsistent   uint64                       `json:"inconsistent_chunks"`
	Corrupt        uint64                       `json:"corrupt_in_dram"`
	Replaced       uint64                       `json:"replaced_below"`  // older bytes under a key that gave way
	Aged           int64                        `json:"chunks_with_age"` // that have a bound on their age
	AgedOut        uint64                       `json:"chunks_aged_out"` // removed because that was reached
	Mismatches     map[string]uint64            `json:"mismatches"`      // by where they were found
	Tiers          map[tier.Place]tier.Stats    `json:"tiers"`
	Loads          map[tier.Place]stack.Volume  `json:"loads"`
	LoadFailed     map[tier.Place]uint64        `json:"loads_failed"`
	Written        map[tier.Place]stack.Written `json:"written"`
	Boundaries     boundary.Stats               `json:"boundaries"` // usable lengths of prompts of hybrid models
	// Groups are the chunks of hybrid models by kind; absent without any.
	Groups map[tier.Place][]stack.GroupStats `json:"groups,omitempty"`
}

// statsJSON is what a client gets; an administrator's has the configuration.
func (d *Daemon) statsJSON(r wire.Rights) ([]byte, error) {
	st := d.stats()
	if r&wire.RightAdmin != 0 {
		var err error
		if st.Config, err = d.reloads.stats(true); err != nil {
			return nil, err
		}
	}
	return json.Marshal(st)
}

func (d *Daemon) stats() Stats {
	a, s := d.arena.Stats(), d.stack.Stats()
	out := Stats{
		Version: version.String(), UptimeSeconds: time.Since(d.started).Seconds(),
		Arena: ArenaStats{
			CapacityBytes: a.CapacityBytes, PopulatedBytes: a.PopulatedBytes, UsedBytes: a.UsedBytes, LargestFreeBytes: a.LargestFreeBytes,
			Blocks: a.Blocks, HugeBytes: a.HugeBytes, Locked: a.Locked,
		},
		Memory: d.budget.Stats(),
		Server: d.server.Stats(),
		Store: StoreStats{
			Recovering: s.Recovering, RecoverFailed: s.RecoverFailed, Chunks: s.Chunks, Placeholders: s.Placeholders, IndexBytes: s.IndexBytes,
			ProtectedBytes: s.Ledger.ProtectedBytes, ClassBytes: make(map[string]int64),
			Inconsistent: s.Inconsistent, Corrupt: s.Corrupt, Replaced: s.Replaced,
			Aged: int64(s.Ages.Chunks), AgedOut: s.Ages.Removed,
			Tiers: s.Tiers, Loads: s.Loads, LoadFailed: s.LoadFailed, Written: s.Written, Boundaries: s.Boundaries, Groups: s.Groups,
		},
	}
	out.Advice = missing.Sentence(out.Server.AskedTokens, &out.Server.Missed, tiersForAdvice(s.Tiers))
	out.Config, _ = d.reloads.stats(false) // which prints nothing that could fail
	out.Store.Mismatches = mismatches(&s)
	for c, n := range s.Ledger.ClassBytes {
		out.Store.ClassBytes[ledger.Class(c).String()] = n
	}
	out.Health = d.healthNow(s.Tiers, s.Written)
	d.fronts.stats(&out)
	if d.events != nil {
		st := d.events.Stats()
		out.Events = &st
	}
	return out
}

// tiersForAdvice is what the sentence about misses has to know of tiers.
func tiersForAdvice(tiers map[tier.Place]tier.Stats) (out []missing.Tier) {
	for p, t := range tiers {
		title := map[tier.Place]string{tier.CPU: "DRAM", tier.Remote: "the bucket"}[p]
		out = append(out, missing.Tier{Name: p.String(), Title: cmp.Or(title, p.String()), CapacityBytes: uint64(max(0, t.CapacityBytes))})
	}
	return out
}

// mismatches counts payloads and records with wrong bytes,
// by where that was found.
func mismatches(s *stack.StackStats) map[string]uint64 {
	out := map[string]uint64{"get": s.Corrupt - s.CorruptDown, "demote": s.CorruptDown}
	for p, t := range s.Tiers {
		if p == tier.CPU {
			continue
		}
		out["promote"] += t.Corrupt - t.Counters["corrupt_scrub"]
		out["scrub"] += t.Counters["corrupt_scrub"]
		out["recovery"] += t.Counters["corrupt_recovery"]
	}
	return out
}
