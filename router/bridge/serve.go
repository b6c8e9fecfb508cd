package bridge

import (
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kvstored/kvstored/internal/metric"
)

// exported are the metrics of a bridge.
var exported = metric.Set{Prefix: "kvstored_bridge_"}

var (
	descConnected   = exported.Desc("connected", "1 while the daemon is heard.")
	descSnapshots   = exported.Desc("snapshots_total", "Times that all that the daemon has was asked for anew.")
	descChanges     = exported.Desc("changes_total", "Changes of tiers that the daemon told.")
	descBatches     = exported.Desc("batches_total", "Batches of changes.")
	descSubscribers = exported.Desc("subscribers", "Subscribers over ZeroMQ.")
	descMessages    = exported.Desc("messages_total", "Messages to subscribers over ZeroMQ, by what came of them: sent, or missed by one that was too slow.", "result")
)

// collector exports the numbers of a bridge.
type collector struct{ *Bridge }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	out, log, pub := metric.Out(ch), c.log.Stats(), c.Pub.Stats()
	connected := 0.0
	if c.connected.Load() {
		connected = 1
	}
	out.Gauge(descConnected, connected)
	out.Counter(descSnapshots, c.snapshots.Load())
	out.Counter(descChanges, log.Noted)
	out.Counter(descBatches, log.Next)
	out.Gauge(descSubscribers, float64(pub.Subscribers))
	out.Counter(descMessages, pub.Sent, "sent")
	out.Counter(descMessages, pub.Dropped, "missed")
}

// Handler answers /metrics, /healthz, and /readyz, which is 503 while the daemon is not
// heard.
func (b *Bridge) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{b}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !b.connected.Load() {
			http.Error(w, "the daemon is not heard", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ready\n")
	})
	return mux
}
