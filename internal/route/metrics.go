package route

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
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

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, labels, nil)
}

var (
	descWorkers      = desc("workers", "Workers that are registered.")
	descUnheard      = desc("workers_unheard", "Workers of which a source of events is not connected.")
	descReservations = desc("reservations", "Reservations that are not freed.")
	descBlocks       = desc("index_blocks", "Blocks in the index, each once.")
	descBytes        = desc("index_bytes", "Memory of the index.")
	descTrimmed      = desc("index_trimmed_total", "Blocks that were forgotten for the budget of the index.")
	descExpired      = desc("index_expired_total", "Blocks of workers that were not told again within their time to live.")
	descQueue        = desc("worker_queue_seconds", "Work that a worker was given and has not done, as estimated.", "worker", "rank")
	descHeld         = desc("worker_blocks", "Blocks that a worker has told of, less those removed.", "worker", "rank", "source")
	descEvents       = desc("worker_events_total", "What the sources of a worker's events have said, by kind.", "worker", "rank", "source", "kind")
)

// collector exports the numbers of workers and of the index.
type collector struct{ *Service }

// Describe implements prometheus.Collector: its metrics come and go with workers.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	put := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	all, unheard := c.Workers(), 0
	for i := range all {
		if !all[i].Connected {
			unheard++
		}
		collectWorker(put, &all[i])
	}
	c.mu.Lock()
	reservations := c.mu.loads.Len()
	c.mu.Unlock()
	x := c.index.Stats()
	put(descWorkers, prometheus.GaugeValue, float64(len(all)))
	put(descUnheard, prometheus.GaugeValue, float64(unheard))
	put(descReservations, prometheus.GaugeValue, float64(reservations))
	put(descBlocks, prometheus.GaugeValue, float64(x.Blocks))
	put(descBytes, prometheus.GaugeValue, float64(x.Memory))
	put(descTrimmed, prometheus.CounterValue, float64(x.Trimmed))
	put(descExpired, prometheus.CounterValue, float64(x.Expired))
}

func collectWorker(put func(*prometheus.Desc, prometheus.ValueType, float64, ...string), w *State) {
	id, rank := valid(w.ID), number(w.Rank)
	put(descQueue, prometheus.GaugeValue, w.Queue, id, rank)
	for name, source := range map[string]*Source{"engine": w.Engine, "kvstored": w.Daemon} {
		if source == nil {
			continue
		}
		put(descHeld, prometheus.GaugeValue, float64(source.Held), id, rank, name)
		for kind, n := range map[string]uint64{
			"batches": source.Batches, "blocks": source.Blocks, "passed": source.Passed, "refused": source.Refused, "duplicates": source.Duplicates,
			"gaps": source.Gaps, "restarts": source.Restarts, "garbage": source.Garbage, "forgotten": source.Forgotten, "dropped": source.Dropped,
			"floods": source.Floods, "silences": source.Silences,
		} {
			put(descEvents, prometheus.CounterValue, float64(n), id, rank, name, kind)
		}
	}
}

// valid is an id as a label can be.
func valid(id string) string { return strings.ToValidUTF8(id, "?") }

func number(rank uint32) string { return strconv.FormatUint(uint64(rank), 10) }
