package bridge

import (
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kvstored/kvstored/internal/httpd"
)

// metrics are those of a bridge.
var metrics = []httpd.Metric[Bridge]{
	httpd.OneMetric("connected", "1 while the daemon is heard.", func(b *Bridge) (n int) {
		if b.connected.Load() {
			n = 1
		}
		return n
	}),
	httpd.OneMetric("snapshots_total", "Times that all that the daemon has was asked for anew.", func(b *Bridge) uint64 { return b.snapshots.Load() }),
	httpd.OneMetric("changes_total", "Changes of tiers that the daemon told.", func(b *Bridge) uint64 { return b.log.Stats().Noted }),
	httpd.OneMetric("batches_total", "Batches of changes.", func(b *Bridge) uint64 { return b.log.Stats().Next }),
	httpd.OneMetric("subscribers", "Subscribers over ZeroMQ.", func(b *Bridge) int { return b.Pub.Stats().Subscribers }),
	httpd.MetricBy("messages_total", "Messages to subscribers over ZeroMQ, by what came of them: sent, or missed by one that was too slow.", "result", func(b *Bridge) map[string]uint64 {
		pub := b.Pub.Stats()
		return map[string]uint64{"sent": pub.Sent, "missed": pub.Dropped}
	}),
}

// collector exports the numbers of a bridge.
type collector struct{ *Bridge }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	httpd.Collect(ch, "kvstored_bridge_", metrics, c.Bridge)
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
