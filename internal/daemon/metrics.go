package daemon

import (
	"errors"
	"sync/atomic"
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
	loadTook [tier.Remote + 1]prometheus.Observer // none for DRAM
	asking   atomic.Int64                         // nanoseconds spent on requests about prompts
}

var (
	requestSeconds = exported.Histogram("request_seconds", "Time from reading a request to handing its answer to the socket; what waits is answered later.",
		prometheus.ExponentialBuckets(1e-6, 2, 22), "op") // 1 us to 2 s
	tierSeconds = exported.Histogram("tier_seconds", "Time of operations of a tier that succeeded, waiting in its queue included.",
		prometheus.ExponentialBuckets(1e-5, 2, 22), "tier", "op") // 10 us to 21 s
	readySeconds = exported.Histogram("prefix_ready_seconds", "Time from reading a prefetch that finds something until its prefix does not grow any more, waiting included, by the farthest tier that a chunk of it came from.",
		fineBuckets(), "tier")
	loadSeconds = exported.Histogram("chunk_load_seconds", "Time from wanting a chunk that is below DRAM until it is there and leased, waiting for turns, for room and for other loads included, by the tier it came from.",
		fineBuckets(), "tier")
	descBuild = desc("build_info", "1, labelled with the versions of the program and of Go.", "version", "goversion")
)

// fineBuckets are those of what engines wait for: from 10 us to 21 s, two to each power of
// two, so that a quantile is at most half too much.
func fineBuckets() (bounds []float64) {
	for i := range 22 {
		bounds = append(bounds, 10*float64(int(1)<<i)/1e6, 15*float64(int(1)<<i)/1e6)
	}
	return bounds[:len(bounds)-1]
}

func newMetrics(d *Daemon) *metrics {
	m := &metrics{daemon: d, registry: prometheus.NewRegistry()}
	h := requestSeconds.Vec()
	m.tierTook, m.readyBy = tierSeconds.Vec(), readySeconds.Vec()
	loads := loadSeconds.Vec()
	for p := range m.loadTook {
		if tier.Place(p) != tier.CPU {
			m.loadTook[p] = loads.WithLabelValues(tier.Place(p).String())
		}
	}
	for op := range m.took {
		if wire.Op(op).Known() {
			m.took[op] = h.WithLabelValues(wire.Op(op).String())
		}
	}
	m.registry.MustRegister(h, m.tierTook, m.readyBy, loads, m, collectors.NewGoCollector(),
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

// loaded times a chunk that came to DRAM.
func (m *metrics) loaded(from tier.Place, took time.Duration) {
	if int(from) < len(m.loadTook) && m.loadTook[from] != nil {
		m.loadTook[from].Observe(took.Seconds())
	}
}

// ready times a prefix.
func (m *metrics) ready(from tier.Place, took time.Duration) {
	m.readyBy.WithLabelValues(from.String()).Observe(took.Seconds())
}

func (m *metrics) observe(op wire.Op, took time.Duration) {
	if op == wire.OpLookup || op == wire.OpPrefetch || op == wire.OpReserve {
		m.asking.Add(int64(took))
	}
	if o := m.took[op]; o != nil {
		o.Observe(took.Seconds())
	}
}
