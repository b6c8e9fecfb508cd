package daemon

import (
	"bytes"
	"errors"
	"net/http"
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

// histogram is a metric of times, which are counted where they are measured.
type histogram struct {
	name, help string
	labels     []string
	buckets    []float64 // upper bounds in seconds
}

var (
	requestSeconds = histogram{
		"request_seconds", "Time from reading a request to handing its answer to the socket; what waits is answered later.",
		[]string{"op"}, prometheus.ExponentialBuckets(1e-6, 2, 22), // 1 us to 2 s
	}
	tierSeconds = histogram{
		"tier_seconds", "Time of operations of a tier that succeeded, waiting in its queue included.",
		[]string{"tier", "op"}, prometheus.ExponentialBuckets(1e-5, 2, 22), // 10 us to 21 s
	}
	readySeconds = histogram{
		"prefix_ready_seconds", "Time from reading a prefetch that finds something until its prefix does not grow any more, waiting included, by the farthest tier that a chunk of it came from.",
		[]string{"tier"}, fineBuckets(),
	}
	loadSeconds = histogram{
		"chunk_load_seconds", "Time from wanting a chunk that is below DRAM until it is there and leased, waiting for turns, for room and for other loads included, by the tier it came from.",
		[]string{"tier"}, fineBuckets(),
	}
	histograms = []histogram{requestSeconds, tierSeconds, readySeconds, loadSeconds}
)

func (h *histogram) vec() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + h.name, Help: h.help, Buckets: h.buckets}, h.labels)
}

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
	h := requestSeconds.vec()
	m.tierTook, m.readyBy = tierSeconds.vec(), readySeconds.vec()
	loads := loadSeconds.vec()
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

// metricsPause is the least from one making of the metrics to the next: it takes a
// processor for some milliseconds, and every user of the machine may ask.
const metricsPause = 50 * time.Millisecond

// sharedMetrics answers with what a handler makes of the metrics, once for all who wait for
// it: no answer is older than its request, and however many ask, one at a time is made.
type sharedMetrics struct {
	handler http.Handler
	turn    chan struct{} // of capacity 1; who has it may use the rest
	begun   time.Time     // when the last answer began to be made
	last    *answer
}

// answer is a ResponseWriter that keeps all writes. Once it is made it is not
// changed any more.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

func newSharedMetrics(h http.Handler) *sharedMetrics {
	return &sharedMetrics{handler: h, turn: make(chan struct{}, 1)}
}

// ServeHTTP implements http.Handler.
func (p *sharedMetrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	came := time.Now()
	select {
	case p.turn <- struct{}{}:
	case <-r.Context().Done():
		return
	}
	if !p.begun.After(came) && !p.make(r) {
		<-p.turn
		return
	}
	a := p.last
	<-p.turn
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body.Bytes()) // a client that has left is told nothing
}

// make makes the answer anew, for all clients in the same form. It is false where its
// client leaves before it begins.
func (p *sharedMetrics) make(r *http.Request) bool {
	if wait := metricsPause - time.Since(p.begun); wait > 0 {
		select {
		case <-time.After(wait):
		case <-r.Context().Done():
			return false
		}
	}
	plain := r.Clone(r.Context())
	plain.Header = nil
	p.begun = time.Now()
	p.last = &answer{header: make(http.Header), code: http.StatusOK}
	p.handler.ServeHTTP(p.last, plain)
	return true
}
