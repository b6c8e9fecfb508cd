package daemon

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// metrics are the daemon's numbers for Prometheus. Counters live where they
// are counted; this only reads them.
type metrics struct {
	daemon   *Daemon
	registry *prometheus.Registry
	took     [256]prometheus.Observer // by operation
	tierTook *prometheus.HistogramVec
	readyBy  *prometheus.HistogramVec
}

// histogram describes one, of seconds.
func histogram(name, help string, buckets []float64, labels ...string) metric {
	m := metric{name, help, labels, buckets}
	described = append(described, m)
	return m
}

// vec makes the histogram of one daemon.
func (m *metric) vec() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kvstored_" + m.name, Help: m.help, Buckets: m.buckets}, m.labels)
}

var (
	requestSeconds = histogram("request_seconds", "Time from reading a request to handing its answer to the socket; what waits is answered later.",
		prometheus.ExponentialBuckets(1e-6, 4, 12), "op") // 1 us to 4 s
	tierSeconds = histogram("tier_seconds", "Time of operations of a tier that succeeded, waiting in its queue included.",
		prometheus.ExponentialBuckets(1e-5, 4, 12), "tier", "op") // 10 us to 42 s
	readySeconds = histogram("prefix_ready_seconds", "Time from reading a prefetch that finds something until its prefix does not grow any more, waiting included, by the farthest tier that a chunk of it came from.",
		prometheus.ExponentialBuckets(1e-5, 2, 22), "tier") // 10 us to 21 s
	descBuild = desc("build_info", "1, labelled with the versions of the program and of Go.", "version", "goversion")
)

func newMetrics(d *Daemon) *metrics {
	m := &metrics{daemon: d, registry: prometheus.NewRegistry()}
	h := requestSeconds.vec()
	m.tierTook, m.readyBy = tierSeconds.vec(), readySeconds.vec()
	for op := range m.took {
		if wire.Op(op).Known() {
			m.took[op] = h.WithLabelValues(wire.Op(op).String())
		}
	}
	m.registry.MustRegister(h, m.tierTook, m.readyBy, m, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{Namespace: "kvstored_database", PidFn: m.databasePid}))
	return m
}

// databasePid is the id of the database's process, whose numbers are left out
// while there is none.
func (m *metrics) databasePid() (int, error) {
	if d := m.daemon.disk; d != nil {
		if pid := d.DatabasePid(); pid > 0 {
			return pid, nil
		}
	}
	return 0, errNoDatabase
}

var errNoDatabase = errors.New("there is no process of a database")

// observer times a tier's operations.
func (m *metrics) observer(p tier.Place) tier.Observer {
	return func(op string, took time.Duration) {
		m.tierTook.WithLabelValues(p.String(), op).Observe(took.Seconds())
	}
}

// ready times a prefix.
func (m *metrics) ready(from tier.Place, took time.Duration) {
	m.readyBy.WithLabelValues(from.String()).Observe(took.Seconds())
}

func (m *metrics) observe(op wire.Op, took time.Duration) {
	if o := m.took[op]; o != nil {
		o.Observe(took.Seconds())
	}
}
