package daemon

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base/broken"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/cli/version"
	"github.com/kvstored/kvstored/internal/events"
	"github.com/kvstored/kvstored/internal/explain/missing"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/sample"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// Stats is what `kvstored stats` shows; field names are stable.
type Stats struct {
	Version       string        `json:"version"`
	UptimeSeconds float64       `json:"uptime_seconds"`
	Health        string        `json:"health"` // ready, or what is wrong, why and since when
	Config        admin.Config  `json:"config"`
	Arena         arena.Stats   `json:"arena"`
	Memory        budget.Stats  `json:"memory"` // of clients, outside the arena
	Server        server.Stats  `json:"server"`
	Store         stack.Stats   `json:"store"`
	Recent        Recent        `json:"recent"`
	Bottleneck    string        `json:"bottleneck"`     // one sentence where the disk is too slow; "" else
	Advice        string        `json:"advice"`         // one sentence: what was missed, and what would have helped; "" while nothing was asked
	RESP          *resp.Stats   `json:"resp,omitempty"` // of front ends that are on
	Events        *events.Stats `json:"events,omitempty"`
	WhatIf        *sample.Stats `json:"what_if,omitempty"`
	LostLines     uint64        `json:"log_lost_lines"`
	Broken        uint64        `json:"broken_invariants"`
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
	s := d.stack.Stats()
	out := Stats{
		Version: version.String(), UptimeSeconds: time.Since(d.started).Seconds(), Arena: d.arena.Stats(), Memory: d.budget.Stats(), Server: d.server.Stats(),
		Store: s,
	}
	out.Advice = missing.Sentence(out.Server.AskedTokens, &out.Server.Missed, tiersForAdvice(s.Tiers))
	out.Config, _ = d.reloads.stats(false) // which prints nothing that could fail
	d.health.look(&s)
	_, out.Health = d.healthNow()
	d.fronts.stats(&out)
	if d.events != nil {
		st := d.events.Stats()
		out.Events = &st
	}
	st := d.sample.Stats()
	out.WhatIf = &st
	if d.lostLines != nil {
		out.LostLines = d.lostLines()
	}
	out.Broken = broken.Count()
	out.Recent = d.recent.since(d.metrics.momentOf(&out))
	out.Bottleneck = out.Recent.bottleneck()
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
