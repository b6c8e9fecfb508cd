package daemon

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/store"
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
	Store         store.Stats          `json:"store"`
	Recent        Recent               `json:"recent"`
	Bottleneck    string               `json:"bottleneck"` // one sentence where the disk is too slow; "" else
	Restart       Restart              `json:"restart"`
	EvictedBy     []EvictedBy          `json:"evicted_by"`     // most first
	Advice        string               `json:"advice"`         // one sentence: what was missed, and what would have helped; "" while nothing was asked
	RESP          *resp.Stats          `json:"resp,omitempty"` // of front ends that are on
	Events        *index.LogStats      `json:"events,omitempty"`
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
	s := d.store.Operator.Stats()
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
	if front := d.fronts.resp; front != nil {
		st := front.Stats()
		out.RESP = &st
	}
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
	for p, n := range d.store.Lookups.Rivals() {
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

const (
	recentSpan  = 10 * time.Minute
	recentSteps = 20 // looks at the counters in it
	// tooMuch is the share of tokens that come late, or of chunks that are not written, from
	// which on the disk is said to be too slow.
	tooMuch = 0.05
)

// Recent is what the daemon did in the last ten minutes, or since it started.
type Recent struct {
	Seconds     float64 `json:"seconds"`
	AskedTokens uint64  `json:"asked_tokens"`
	HitTokens   uint64  `json:"hit_tokens"`
	Saved       float64 `json:"saved_seconds"`  // of engines that have told how fast they compute
	LateTokens  uint64  `json:"late_tokens"`    // found, and not up at their deadline
	Dropped     uint64  `json:"dropped_chunks"` // that the disk did not write in time
	Reads       Times   `json:"disk_reads"`
	Writes      Times   `json:"disk_writes"`
	Loads       Times   `json:"disk_loads"`    // chunks that clients waited for, with all that they waited for
	FromRemote  uint64  `json:"remote_chunks"` // read from the bucket
	Prefixes    uint64  `json:"prefixes"`      // that were found for clients that waited for them
	FromDisk    uint64  `json:"disk_prefixes"` // of them, whose last chunks came from disk
	Device      string  `json:"disk_device"`   // one sentence: how busy the disk was; "" without one
}

// Times are those of some operations, in seconds.
type Times struct {
	Count uint64  `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Bytes uint64  `json:"bytes"` // of reads and writes
}

// moment is the counts up to one.
type moment struct {
	at                   time.Time
	sum                  Recent   // but for its times
	reads, writes, loads []uint64 // by bucket of their histogram, each with the ones below it
}

// recent keeps moments of the last ten minutes. It is safe for concurrent use.
type recent struct {
	mu   sync.Mutex
	ring [recentSteps + 1]moment
	n    int // kept, ever
}

// since is what was counted from the oldest moment that is kept to m. m is kept too, unless
// one was shortly before.
func (r *recent) since(m moment) Recent {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == 0 || m.at.Sub(r.ring[(r.n-1)%len(r.ring)].at) >= recentSpan/recentSteps {
		r.ring[r.n%len(r.ring)] = m
		r.n++
	}
	was := &r.ring[max(0, r.n-len(r.ring))%len(r.ring)]
	if m.at.Before(was.at) { // two came at once, and the other was first
		return Recent{}
	}
	out := Recent{
		Seconds: m.at.Sub(was.at).Seconds(), AskedTokens: m.sum.AskedTokens - was.sum.AskedTokens, HitTokens: m.sum.HitTokens - was.sum.HitTokens,
		Saved: max(0, m.sum.Saved-was.sum.Saved), LateTokens: m.sum.LateTokens - was.sum.LateTokens, Dropped: m.sum.Dropped - was.sum.Dropped, FromRemote: m.sum.FromRemote - was.sum.FromRemote,
		Reads: times(tierSeconds.buckets, was.reads, m.reads), Writes: times(tierSeconds.buckets, was.writes, m.writes), Loads: times(loadSeconds.buckets, was.loads, m.loads),
		Prefixes: m.sum.Prefixes - was.sum.Prefixes, FromDisk: m.sum.FromDisk - was.sum.FromDisk,
	}
	out.Reads.Bytes, out.Writes.Bytes = m.sum.Reads.Bytes-was.sum.Reads.Bytes, m.sum.Writes.Bytes-was.sum.Writes.Bytes
	return out
}

// momentOf is that of statistics that were just read.
func (m *metrics) momentOf(s *Stats) moment {
	now := moment{at: time.Now()}
	now.sum.AskedTokens = s.Server.AskedTokens
	for _, n := range s.Server.HitTokens {
		now.sum.HitTokens += n
	}
	for i := range s.Server.Models {
		now.sum.Saved += s.Server.Models[i].Saved
	}
	for _, t := range s.Server.Missed.Missed {
		if t.Reason == explain.Timeout.String() {
			now.sum.LateTokens += t.Tokens
		}
	}
	now.sum.FromRemote = s.Store.Tiers[tier.Remote].Gets
	for p := range s.Store.Tiers {
		now.sum.Prefixes += histogramOf(m.readyBy.WithLabelValues(p.String())).GetSampleCount()
	}
	if disk, ok := s.Store.Tiers[tier.Disk]; ok {
		now.sum.FromDisk = histogramOf(m.readyBy.WithLabelValues(tier.Disk.String())).GetSampleCount()
		now.sum.Reads.Bytes, now.sum.Writes.Bytes = disk.GetBytes, disk.PutBytes
		now.sum.Dropped = s.Store.Written[tier.Disk].Dropped[explain.QueueFull].Chunks
		now.reads = cumulative(m.tierTook.WithLabelValues(tier.Disk.String(), "get"))
		now.writes = cumulative(m.tierTook.WithLabelValues(tier.Disk.String(), "put"))
		now.loads = cumulative(m.loadTook[tier.Disk])
	}
	return now
}

// histogramOf is what a histogram has counted; empty where that cannot be told.
func histogramOf(o prometheus.Observer) *dto.Histogram {
	h, ok := o.(prometheus.Metric)
	var out dto.Metric
	if !ok || h.Write(&out) != nil {
		return nil
	}
	return out.GetHistogram()
}

// cumulative is how many observations a histogram has up to each of its bounds, and all.
func cumulative(o prometheus.Observer) (counts []uint64) {
	h := histogramOf(o)
	for _, b := range h.GetBucket() {
		counts = append(counts, b.GetCumulativeCount())
	}
	return append(counts, h.GetSampleCount())
}

// times are those of the observations between two moments.
func times(bounds []float64, was, now []uint64) (t Times) {
	if len(was) != len(now) || now == nil {
		return t
	}
	grown := make([]uint64, len(now))
	for i := range now {
		grown[i] = now[i] - was[i]
	}
	t.Count = grown[len(bounds)]
	t.P50, t.P99 = quantile(0.50, bounds, grown), quantile(0.99, bounds, grown)
	return t
}

// quantile is in the middle of the bucket that it falls into, as far as it is known; 0 of
// no observation, the largest bound of one above all bounds.
func quantile(q float64, bounds []float64, counts []uint64) float64 {
	rank, low := uint64(math.Ceil(q*float64(counts[len(bounds)]))), 0.0
	for i, high := range bounds {
		switch {
		case rank == 0:
			return 0
		case counts[i] >= rank:
			return (low + high) / 2
		}
		low = high
	}
	return low
}

// bottleneck says that the disk is too slow, by what, and what would help; "" where it is
// not, or where others than the disk may be.
func (r *Recent) bottleneck() string {
	span := human.Duration(time.Duration(r.Seconds * float64(time.Second)))
	switch late := float64(r.LateTokens) / max(1, float64(r.AskedTokens)); {
	case late > tooMuch && r.Loads.Count > 0 && r.FromRemote == 0:
		return fmt.Sprintf("the disk is too slow: %.0f %% of the tokens that were asked for in the last %s came after their deadline; a chunk from disk is up after %s (p99 %s). More DRAM or a faster disk would help",
			100*late, span, human.Micros(1e6*r.Loads.P50), human.Micros(1e6*r.Loads.P99))
	case float64(r.Dropped) > tooMuch*float64(r.Dropped+r.Writes.Count):
		return fmt.Sprintf("the disk is too slow: %s were not written in the last %s before DRAM needed their room; a write takes %s (p99 %s). More DRAM or a faster disk would help",
			human.Plural(r.Dropped, "chunk"), span, human.Micros(1e6*r.Writes.P50), human.Micros(1e6*r.Writes.P99))
	}
	return ""
}

// device says how much of what a probe has found the disk was used, and how many waited for it.
func (r *Recent) device(disk tier.Stats) string {
	if len(disk.Paths) == 0 { // it is not open
		return ""
	}
	read, write := uint64(0), uint64(0)
	for _, p := range disk.Paths {
		if p.Counters["probed_read"] == 0 {
			read, write = 0, 0
			break
		}
		read, write = read+p.Counters["probed_read"], write+p.Counters["probed_write"]
	}
	use := func(verb string, n, can uint64) string {
		rate := float64(n) / max(1, r.Seconds)
		text := fmt.Sprintf("%s %s/s", verb, human.Bytes(rate))
		if can > 0 {
			text += fmt.Sprintf(" (%s of the %s/s probed)", human.Percent(rate, float64(can)), human.Bytes(can))
		}
		return text
	}
	text := use("read", r.Reads.Bytes, read) + ", " + use("wrote", r.Writes.Bytes, write)
	if read == 0 {
		text += "; its device was not probed"
	}
	return text + fmt.Sprintf("; %s of prefixes waited for it", human.Percent(float64(r.FromDisk), float64(r.Prefixes)))
}

// Restart is what a stop and a start would cost now.
type Restart struct {
	WriteBytes int64   `json:"write_bytes"` // that only DRAM has, at most
	Seconds    float64 `json:"seconds"`     // to write them to disk, as fast as that went so far; 0: not known
	DRAMBytes  int64   `json:"dram_bytes"`
	DRAMKept   bool    `json:"dram_kept"` // by a keeper
	Sentence   string  `json:"sentence"`
}

// restart is the cost by statistics that were just read. took is the sum of what writes to
// disk took, as many of which were under way as there are workers; limit is stop.flush.
func restart(s *Stats, kept bool, took, limit time.Duration) Restart {
	r := Restart{WriteBytes: s.Store.DirtyBytes, DRAMBytes: s.Store.Tiers[tier.CPU].UsedBytes, DRAMKept: kept}
	disk, ok := s.Store.Tiers[tier.Disk]
	if bytes := float64(disk.PutBytes) * float64(max(1, s.Store.Written[tier.Disk].Workers)); bytes > 0 && !disk.Off {
		r.Seconds = float64(r.WriteBytes) * took.Seconds() / bytes
	}
	if r.DRAMBytes == 0 {
		return r
	}
	r.Sentence = "A restart now " + r.writes(ok && !disk.Off, limit) + r.keeps(ok && !disk.Off)
	return r
}

// writes is the part of the sentence about the writes of a stop.
func (r *Restart) writes(disk bool, limit time.Duration) string {
	switch {
	case !disk:
		return "writes nothing to disk; "
	case r.WriteBytes == 0:
		return "has nothing to write; "
	case r.Seconds == 0:
		return fmt.Sprintf("writes up to %s first, in %s at most; ", human.Bytes(r.WriteBytes), limit)
	case r.Seconds > limit.Seconds():
		return fmt.Sprintf("has %s to write, which takes about %s: stop.flush allows %s, and the rest is computed again; ", human.Bytes(r.WriteBytes), human.Seconds(r.Seconds), limit)
	}
	return fmt.Sprintf("writes up to %s first, in about %s; ", human.Bytes(r.WriteBytes), human.Seconds(r.Seconds))
}

// keeps is the part about DRAM.
func (r *Restart) keeps(disk bool) string {
	of := human.Bytes(r.DRAMBytes)
	switch {
	case r.DRAMKept:
		return "its keeper keeps the " + of + " of DRAM"
	case disk:
		return "the " + of + " of DRAM come from disk again: with cpu.keep and a keeper they would stay"
	}
	return "the " + of + " of DRAM are lost: with cpu.keep and a keeper they would stay"
}
