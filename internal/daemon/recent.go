package daemon

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/tier"
)

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
		now.sum.Dropped = s.Store.Written[tier.Disk].Dropped[stack.DropQueueFull].Chunks
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
