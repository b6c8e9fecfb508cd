package route

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kvstored/kvstored/internal/metric"
)

// counts are the metrics of a service.
type counts struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	took     *prometheus.HistogramVec
	asked    prometheus.Counter
	reused   prometheus.Counter
}

const prefix = "kvstored_route_"

func (c *counts) make(s *Service) {
	c.registry = prometheus.NewRegistry()
	c.calls = prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "calls_total", Help: "Calls, by what came of them."}, []string{"call", "code"})
	c.took = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: prefix + "call_seconds", Help: "Time to read, answer and write a call.", Buckets: prometheus.ExponentialBuckets(50e-6, 4, 9),
	}, []string{"call"})
	c.asked = prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "selected_tokens_total", Help: "Tokens of prompts for which a worker was selected."})
	c.reused = prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "reused_tokens_total", Help: "Tokens of these that their worker is expected not to compute."})
	c.registry.MustRegister(c.calls, c.took, c.asked, c.reused, &collector{s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// exported are the metrics of the workers and of the index.
var exported = metric.Set{Prefix: prefix}

var (
	descWorkers      = exported.Desc("workers", "Workers that are registered.")
	descUnheard      = exported.Desc("workers_unheard", "Workers of which a source of events is not connected.")
	descReservations = exported.Desc("reservations", "Reservations that are not freed.")
	descBlocks       = exported.Desc("index_blocks", "Blocks in the index, each once.")
	descBytes        = exported.Desc("index_bytes", "Memory of the index.")
	descTrimmed      = exported.Desc("index_trimmed_total", "Blocks that were forgotten for the budget of the index.")
	descExpired      = exported.Desc("index_expired_total", "Blocks of workers that were not told again within their time to live.")
	descQueue        = exported.Desc("worker_queue_seconds", "Work that a worker was given and has not done, as estimated.", "worker", "rank")
	descHeld         = exported.Desc("worker_blocks", "Blocks that a worker has by a source, each for each medium.", "worker", "rank", "source")
	descEvents       = exported.Desc("worker_events_total", "What the sources of a worker's events have said, by kind.", "worker", "rank", "source", "kind")
)

// collector exports the numbers of workers and of the index.
type collector struct{ *Service }

// Describe implements prometheus.Collector: its metrics come and go with workers.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	out := metric.Out(ch)
	all, unheard := c.Workers(), 0
	for i := range all {
		if !all[i].Connected {
			unheard++
		}
		collectWorker(out, &all[i])
	}
	c.mu.Lock()
	reservations := c.mu.loads.Len()
	c.mu.Unlock()
	x := c.index.Stats()
	out.Gauge(descWorkers, float64(len(all)))
	out.Gauge(descUnheard, float64(unheard))
	out.Gauge(descReservations, float64(reservations))
	out.Gauge(descBlocks, float64(x.Blocks))
	out.Gauge(descBytes, float64(x.Memory))
	out.Counter(descTrimmed, uint64(x.Trimmed))
	out.Counter(descExpired, uint64(x.Expired))
}

func collectWorker(out metric.Out, w *State) {
	id, rank := valid(w.ID), number(w.Rank)
	out.Gauge(descQueue, w.Queue, id, rank)
	for name, source := range map[string]*Source{"engine": w.Engine, "kvstored": w.Daemon} {
		if source == nil {
			continue
		}
		out.Gauge(descHeld, float64(source.Held), id, rank, name)
		for kind, n := range map[string]uint64{
			"batches": source.Batches, "blocks": source.Blocks, "passed": source.Passed, "refused": source.Refused, "duplicates": source.Duplicates,
			"gaps": source.Gaps, "restarts": source.Restarts, "garbage": source.Garbage, "forgotten": source.Forgotten, "dropped": source.Dropped,
			"floods": source.Floods, "silences": source.Silences,
		} {
			out.Counter(descEvents, uint64(n), id, rank, name, kind)
		}
	}
}

// valid is an id as a label can be.
func valid(id string) string { return strings.ToValidUTF8(id, "?") }

func number(rank uint32) string { return strconv.FormatUint(uint64(rank), 10) }
