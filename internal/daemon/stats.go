package daemon

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/events"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// Stats is what `kvstored stats` shows; field names are stable.
type Stats struct {
	Version       string               `json:"version"`
	UptimeSeconds float64              `json:"uptime_seconds"`
	Health        string               `json:"health"` // ready, or what is wrong, why and since when
	Config        admin.Config         `json:"config"`
	Arena         arena.Stats          `json:"arena"`
	Memory        budget.Stats         `json:"memory"` // of clients, outside the arena
	Server        server.Stats         `json:"server"`
	Store         stack.Stats          `json:"store"`
	Recent        Recent               `json:"recent"`
	Bottleneck    string               `json:"bottleneck"` // one sentence where the disk is too slow; "" else
	Restart       Restart              `json:"restart"`
	EvictedBy     []EvictedBy          `json:"evicted_by"`     // most first
	Advice        string               `json:"advice"`         // one sentence: what was missed, and what would have helped; "" while nothing was asked
	RESP          *resp.Stats          `json:"resp,omitempty"` // of front ends that are on
	Events        *events.Stats        `json:"events,omitempty"`
	WhatIf        *explain.SampleStats `json:"what_if,omitempty"`
	LostLines     uint64               `json:"log_lost_lines"`
	Broken        uint64               `json:"broken_invariants"`
}

// statsJSON is what a client gets; an administrator's has the configuration.
func (d *Daemon) statsJSON(r wire.Rights) ([]byte, error) {
	st := d.stats()
	if r&wire.RightAdmin != 0 {
		var err error
		if st.Config, err = d.reloads.stats(true); err != nil {
			return nil, err
		}
	} else {
		st.EvictedBy = nil // of all spaces
	}
	return json.Marshal(st)
}

func (d *Daemon) stats() Stats {
	s := d.stack.Stats()
	out := Stats{
		Version: human.VersionText(), UptimeSeconds: time.Since(d.started).Seconds(), Arena: d.arena.Stats(), Memory: d.budget.Stats(), Server: d.server.Stats(),
		Store: s,
	}
	sizes := make(map[string]uint64)
	for p, t := range s.Tiers {
		sizes[p.String()] = uint64(max(0, t.CapacityBytes))
	}
	out.Advice = explain.Sentence(out.Server.AskedTokens, &out.Server.Missed, sizes)
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
	out.Broken = base.BrokenCount()
	out.Recent = d.recent.since(d.metrics.momentOf(&out))
	out.Bottleneck = out.Recent.bottleneck()
	if disk, ok := s.Tiers[tier.Disk]; ok {
		out.Recent.Device = out.Recent.device(disk)
	}
	wrote := time.Duration(histogramOf(d.metrics.tierTook.WithLabelValues(tier.Disk.String(), "put")).GetSampleSum() * float64(time.Second))
	out.Restart = restart(&out, d.kept.Load(), wrote, d.reloads.running().Stop.Flush)
	out.EvictedBy = d.evictedBy()
	return out
}

// EvictedBy is chunks of a space that no tier has any more, evicted for those of another:
// as many as the other's share is of the bytes that came in the same minutes.
type EvictedBy struct {
	By     string `json:"by"` // model, adapter and salt of the space
	Of     string `json:"of"`
	Chunks uint64 `json:"chunks"` // in the last hour
}

func (d *Daemon) evictedBy() (list []EvictedBy) {
	sums := make(map[[2]string]float64)
	for p, n := range d.stack.Rivals() {
		sums[[2]string{d.server.Title(p.By), d.server.Title(p.Of)}] += n
	}
	for names, n := range sums {
		if n >= 0.5 {
			list = append(list, EvictedBy{names[0], names[1], uint64(math.Round(n))})
		}
	}
	slices.SortFunc(list, func(a, b EvictedBy) int {
		return cmp.Or(cmp.Compare(b.Chunks, a.Chunks), cmp.Compare(a.Of, b.Of), cmp.Compare(a.By, b.By))
	})
	return list
}
