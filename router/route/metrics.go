package route

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kvstored/kvstored/internal/httpd"
	"github.com/kvstored/kvstored/router/index"
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

// snapshot is what the workers and the index are at one moment.
type snapshot struct {
	workers      []State
	reservations int
	index        index.Stats
}

// metrics are those of the workers and of the index.
var metrics = []httpd.Metric[snapshot]{
	httpd.OneMetric("workers", "Workers that are registered.", func(s *snapshot) int { return len(s.workers) }),
	httpd.OneMetric("workers_unheard", "Workers of which a source of events is not connected.", func(s *snapshot) (n int) {
		for i := range s.workers {
			if !s.workers[i].Connected {
				n++
			}
		}
		return n
	}),
	httpd.OneMetric("reservations", "Reservations that are not freed.", func(s *snapshot) int { return s.reservations }),
	httpd.OneMetric("index_blocks", "Blocks in the index, each once.", func(s *snapshot) int { return s.index.Blocks }),
	httpd.OneMetric("index_bytes", "Memory of the index.", func(s *snapshot) int64 { return s.index.Memory }),
	httpd.OneMetric("index_trimmed_total", "Blocks that were forgotten for the budget of the index.", func(s *snapshot) int64 { return s.index.Trimmed }),
	httpd.OneMetric("index_expired_total", "Blocks of workers that were not told again within their time to live.", func(s *snapshot) int64 { return s.index.Expired }),
	httpd.NewMetric("worker_queue_seconds", "Work that a worker was given and has not done, as estimated.", func(s *snapshot, put httpd.Put) {
		for i := range s.workers {
			w := &s.workers[i]
			put(w.Queue, valid(w.ID), number(w.Rank))
		}
	}, "worker", "rank"),
	httpd.NewMetric("worker_blocks", "Blocks that a worker has by a source, each for each medium.", func(s *snapshot, put httpd.Put) {
		s.sources(func(source *Source, labels ...string) { put(float64(source.Held), labels...) })
	}, "worker", "rank", "source"),
	httpd.NewMetric("worker_events_total", "What the sources of a worker's events have said, by kind.", func(s *snapshot, put httpd.Put) {
		s.sources(func(source *Source, labels ...string) {
			for kind, n := range map[string]uint64{
				"batches": source.Batches, "blocks": source.Blocks, "passed": source.Passed, "refused": source.Refused, "duplicates": source.Duplicates,
				"gaps": source.Gaps, "restarts": source.Restarts, "garbage": source.Garbage, "forgotten": source.Forgotten, "dropped": source.Dropped,
				"floods": source.Floods, "silences": source.Silences,
			} {
				put(float64(n), append(labels, kind)...)
			}
		})
	}, "worker", "rank", "source", "kind"),
}

// sources calls see for each source of a worker, with the labels of both.
func (s *snapshot) sources(see func(source *Source, labels ...string)) {
	for i := range s.workers {
		w := &s.workers[i]
		for name, source := range map[string]*Source{"engine": w.Engine, "kvstored": w.Daemon} {
			if source != nil {
				see(source, valid(w.ID), number(w.Rank), name)
			}
		}
	}
}

// collector exports the numbers of workers and of the index.
type collector struct{ *Service }

// Describe implements prometheus.Collector: its metrics come and go with workers.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	reservations := c.mu.loads.Len()
	c.mu.Unlock()
	httpd.Collect(ch, prefix, metrics, &snapshot{c.Workers(), reservations, c.index.Stats()})
}

// valid is an id as a label can be.
func valid(id string) string { return strings.ToValidUTF8(id, "?") }

func number(rank uint32) string { return strconv.FormatUint(uint64(rank), 10) }
