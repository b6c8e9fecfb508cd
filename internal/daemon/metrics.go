package daemon

import (
	"bytes"
	"errors"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/httpd"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/internal/writeback"
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
	if o := m.took[op]; o != nil {
		o.Observe(took.Seconds())
	}
}

// metricsPause is the least from one making of the metrics to the next, pagePause of the
// page's numbers: it takes a processor for some milliseconds, and every user of the machine
// may ask.
const (
	metricsPause = 50 * time.Millisecond
	pagePause    = time.Second
)

// shared answers with what a handler makes of the daemon's numbers, once for all who wait for
// it: no answer is older than its request, and however many ask, one at a time is made.
type shared struct {
	pause   time.Duration
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

func newShared(pause time.Duration, h http.Handler) *shared {
	return &shared{pause: pause, handler: h, turn: make(chan struct{}, 1)}
}

// ServeHTTP implements http.Handler.
func (p *shared) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := p.answer(r)
	if a == nil {
		return
	}
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body.Bytes()) // a client that has left is told nothing
}

// answer is the last one, or a new one, for all clients in the same form; nil where its client
// leaves before that begins.
func (p *shared) answer(r *http.Request) *answer {
	came := time.Now()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }() // also where the handler panics
	case <-r.Context().Done():
		return nil
	}
	if p.begun.After(came) {
		return p.last
	}
	if wait := p.pause - time.Since(p.begun); wait > 0 && base.Sleep(r.Context(), wait) != nil {
		return nil
	}
	plain := r.Clone(r.Context())
	plain.Header = nil
	begun, a := time.Now(), &answer{header: make(http.Header), code: http.StatusOK}
	p.handler.ServeHTTP(a, plain)
	p.begun, p.last = begun, a
	return a
}

// prefix is that of all names of the daemon's metrics.
const prefix = "kvstored_"

// exported are the metrics that are read of the daemon's statistics. An alert, a panel or a page for
// operators names each; what none does is in `kvstored stats --json` only.
var exported = []httpd.Metric[Stats]{
	httpd.NewMetric("build_info", "1, labelled with the versions of the program and of Go.", func(s *Stats, put httpd.Put) {
		put(1, s.Version, runtime.Version())
	}, "version", "goversion"),
	httpd.OneMetric("ready", "1 once everything an earlier process left has been found.", func(s *Stats) int { return bit(!s.Store.Recovering) }),
	httpd.OneMetric("log_lost_lines_total", "Lines of the log that were lost, because nothing took them from standard error.", func(s *Stats) uint64 { return s.LostLines }),
	httpd.OneMetric("broken_invariants_total", "Times that the daemon found its own books broken; it logs each kind.", func(s *Stats) uint64 { return s.Broken }),
	httpd.OneMetric("config_last_reload_successful", "1 if the last reload of the configuration was applied, or there was none.", func(s *Stats) int { return bit(s.Config.LastReloadOK) }),

	httpd.OneMetric("connections", "Clients connected now.", func(s *Stats) int { return s.Server.Connections }),
	httpd.MetricBy("connections_refused_total", "Connections that were refused, also those of front ends: too many (connections, uid_connections), or hello failed, or no memory.", "reason", func(s *Stats) map[string]uint64 { return s.Server.RefusedBy }),
	httpd.NewMetric("connections_closed_total", "Connections closed that their clients would have kept.", func(s *Stats, put httpd.Put) {
		for front, reasons := range s.Memory.Closed {
			for reason, n := range reasons {
				put(float64(n), front, reason)
			}
		}
	}, "front", "reason"),
	httpd.OneMetric("client_memory_bytes", "Memory that clients cost now outside DRAM.", func(s *Stats) int64 { return s.Memory.UsedBytes }),
	httpd.OneMetric("client_memory_limit_bytes", "What they may cost.", func(s *Stats) int64 { return s.Memory.LimitBytes }),
	httpd.NewMetric("request_errors_total", "Requests refused or failed, by operation and by the code of the reply.", func(s *Stats, put httpd.Put) {
		for _, e := range s.Server.ErrorsBy {
			put(float64(e.Requests), e.Op, e.Code)
		}
	}, "op", "code"),
	httpd.OneMetric("malformed_frames_total", "Frames that did not follow the protocol.", func(s *Stats) uint64 { return s.Server.Malformed }),
	httpd.OneMetric("revoked_total", "Leases and fills taken back because they grew too old.", func(s *Stats) uint64 { return s.Server.Revoked }),
	httpd.MetricBy("puts_differ_total", "Chunks that a client had other bytes for, or another length, than are stored under their key, which stay; by space.", "space", func(s *Stats) map[string]uint64 { return s.Server.DiffersBySpace }),
	httpd.OneMetric("stored_bytes_total", "Payload bytes committed by clients.", func(s *Stats) uint64 { return s.Server.StoredBytes }),

	httpd.OneMetric("asked_tokens_total", "Tokens of prompts asked for.", func(s *Stats) uint64 { return s.Server.AskedTokens }),
	httpd.MetricBy("hit_tokens_total", "Tokens in ready prefixes, by the tier they were found in.", "tier", func(s *Stats) map[tier.Place]uint64 { return s.Server.HitTokens }),
	httpd.NewMetric("missed_tokens_total", "Tokens of prompts asked for that were not in a ready prefix, by why its first missing chunk is missing, and the tier that had or declined it.", func(s *Stats, put httpd.Put) {
		for _, m := range s.Server.Missed.Missed {
			put(float64(m.Tokens), m.Tier, m.Reason)
		}
	}, "tier", "reason"),
	httpd.NewMetric("usable_lost_tokens_total", "Tokens of prompts of hybrid models that the full groups had and that could not be used, by the kind of the group that cut them off, and why what it needs was not there: not stored as far as is known (never), gone (evicted), or not up at the deadline (late).", func(s *Stats, put httpd.Put) {
		for _, l := range s.Server.Lost {
			put(float64(l.Tokens), l.Group, l.Reason)
		}
	}, "group", "reason"),
	ofModel("model_asked_tokens_total", "Tokens of prompts asked for, by model; a few dozen models have a label of their own.", func(m *server.ModelStats, put httpd.Put) {
		put(float64(m.AskedTokens), m.Model)
	}, "model"),
	ofModel("model_hit_tokens_total", "Tokens in ready prefixes, by model and by the tier they were found in.", func(m *server.ModelStats, put httpd.Put) {
		for p, n := range m.HitTokens {
			put(float64(n), m.Model, tier.Place(p).String())
		}
	}, "model", "tier"),
	ofModel("model_saved_seconds_total", "Seconds that engines did not compute, at the rates that they have told, by model.", func(m *server.ModelStats, put httpd.Put) {
		put(m.Saved, m.Model)
	}, "model"),

	ofTier("tier_entries", "Chunks in a tier.", func(t *tier.Stats) int64 { return t.Entries }),
	ofTier("tier_used_bytes", "Bytes a tier's chunks occupy.", func(t *tier.Stats) int64 { return t.UsedBytes }),
	ofTier("tier_capacity_bytes", "What a tier may occupy.", func(t *tier.Stats) int64 { return t.CapacityBytes }),
	ofTier("tier_read_bytes_total", "Payload bytes read from a tier.", func(t *tier.Stats) uint64 { return t.GetBytes }),
	ofTier("tier_written_bytes_total", "Payload bytes written to a tier.", func(t *tier.Stats) uint64 { return t.PutBytes }),
	ofTier("tier_evictions_total", "Chunks evicted.", func(t *tier.Stats) uint64 { return t.Evictions }),
	ofTier("tier_evicted_bytes_total", "Bytes evicted.", func(t *tier.Stats) uint64 { return t.EvictedBytes }),
	ofTier("tier_off", "1 while a tier is switched off after failures.", func(t *tier.Stats) int { return bit(t.Off) }),
	httpd.NewMetric("tier_largest_free_ratio", "Largest free run of a tier, of what is free; absent where nothing is.", func(s *Stats, put httpd.Put) {
		for p, t := range s.Store.Tiers {
			if free := t.CapacityBytes - t.UsedBytes; free > 0 {
				put(min(1, float64(t.LargestFreeBytes)/float64(free)), p.String())
			}
		}
	}, "tier"),
	httpd.NewMetric("corrupt_total", "Chunks dropped because their bytes were wrong.", func(s *Stats, put httpd.Put) {
		for p, t := range s.Store.Tiers {
			n := t.Corrupt
			if p == tier.CPU {
				n = s.Store.Corrupt
			}
			put(float64(n), p.String())
		}
	}, "tier"),
	httpd.MetricBy("mismatches_total", "Payloads and records that were not what was stored, by where that was found.", "place", func(s *Stats) map[string]uint64 { return s.Store.Mismatches }),
	httpd.MetricBy("load_failures_total", "Loads that a tier failed.", "tier", func(s *Stats) map[tier.Place]uint64 { return s.Store.LoadFailed }),
	httpd.MetricBy("budget_bytes", "Bytes in DRAM held, by what for.", "class", func(s *Stats) map[string]int64 { return s.Store.ClassBytes }),
	counted("dram_aside_bytes", "Bytes of DRAM that nobody gets until the daemon ends, because its books of them are broken.", tier.CPU, "aside_bytes"),
	ofQuota("quota_used_bytes", "Bytes of the spaces under a quota.", func(q *ledger.QuotaStats) int64 { return q.UsedBytes }),
	ofQuota("quota_evictions_total", "Chunks evicted because their own space was over its quota.", func(q *ledger.QuotaStats) uint64 { return q.Evictions }),
	ofQuota("quota_refused_total", "Chunks that had no room under their quota.", func(q *ledger.QuotaStats) uint64 { return q.Refused }),

	ofWriter("write_waiting_chunks", "Chunks not yet written below.", func(w *writeback.Written, put httpd.Put, tier string) { put(float64(w.Waiting), tier) }, "tier"),
	ofWriter("write_missed_chunks", "Of the chunks that were dropped, those that are offered again when the tier works.", func(w *writeback.Written, put httpd.Put, tier string) { put(float64(w.Missed), tier) }, "tier"),
	ofWriter("write_dropped_chunks_total", "Chunks not written below, by reason.", func(w *writeback.Written, put httpd.Put, tier string) {
		for reason, n := range w.Dropped {
			put(float64(n.Chunks), tier, reason.String())
		}
	}, "tier", "reason"),

	counted("disk_io_errors_total", "Requests that a device failed.", tier.Disk, "io_errors"),
	counted("disk_io_timeouts_total", "Requests that a device did not answer in time.", tier.Disk, "io_timeouts"),
	counted("disk_read_queue", "Reads that wait for a device.", tier.Disk, "read_queue"),
	counted("disk_write_queue", "Writes that wait for a device.", tier.Disk, "write_queue"),
	counted("disk_process_written_bytes_total", "Bytes that the daemon's process has written, as the kernel counts.", tier.Disk, "process_write_bytes"),
	counted("disk_database_written_bytes_total", "Bytes that the database's process has written, as the kernel counts; anew where the database is opened again.", tier.Disk, "database_write_bytes"),
	counted("disk_paths_missing", "Folders of disk.paths that are missing.", tier.Disk, "paths_missing"),
	countedBy("disk_evicted_chunks_total", "Chunks evicted from disk, by what for: room for a payload, ahead of need, the file system's others, the database, the number of chunks.", tier.Disk, "reason", map[string]string{
		"evicted_for_room": "room", "evicted_ahead": "ahead", "evicted_for_min_free": "min_free",
		"evicted_for_database": "database", "evicted_for_entries": "entries",
	}),
	ofPath("disk_path_available_bytes", "Bytes free in a folder's file system.", "available_bytes"),
	ofPath("disk_path_off", "1 while a folder is left alone after failures.", "off"),
	countedBy("remote_requests_total", "Requests to the object store.", tier.Remote, "kind", map[string]string{
		"get_requests": "get", "put_requests": "put", "head_requests": "head", "list_requests": "list", "delete_requests": "delete",
	}),

	ofFront("front_errors_total", "Commands that a front end could not carry out.", func(s *resp.Stats, put httpd.Put, front string) { put(float64(s.Errors), front) }, "front"),
	ofFront("front_owed_deletions", "Old values that could not be deleted from the disk yet; their names read as absent.", func(s *resp.Stats, put httpd.Put, front string) { put(float64(s.Owed), front) }, "front"),
	ofFront("front_dropped_total", "Values that a front end took and did not keep; it made sure that their names have none.", func(s *resp.Stats, put httpd.Put, front string) {
		for reason, n := range s.Dropped {
			put(float64(n), front, reason)
		}
	}, "front", "reason"),
}

func bit(on bool) int {
	if on {
		return 1
	}
	return 0
}

func ofModel(name, help string, read func(*server.ModelStats, httpd.Put), labels ...string) httpd.Metric[Stats] {
	return httpd.NewMetric(name, help, func(s *Stats, put httpd.Put) {
		for i := range s.Server.Models {
			read(&s.Server.Models[i], put)
		}
	}, labels...)
}

func ofTier[N httpd.Number](name, help string, read func(*tier.Stats) N) httpd.Metric[Stats] {
	return httpd.NewMetric(name, help, func(s *Stats, put httpd.Put) {
		for p, t := range s.Store.Tiers {
			put(float64(read(&t)), p.String())
		}
	}, "tier")
}

func ofQuota[N httpd.Number](name, help string, read func(*ledger.QuotaStats) N) httpd.Metric[Stats] {
	return httpd.NewMetric(name, help, func(s *Stats, put httpd.Put) {
		for p, t := range s.Store.Tiers {
			for i := range t.Quotas {
				put(float64(read(&t.Quotas[i])), p.String(), t.Quotas[i].Match)
			}
		}
	}, "tier", "match")
}

func ofWriter(name, help string, read func(w *writeback.Written, put httpd.Put, tier string), labels ...string) httpd.Metric[Stats] {
	return httpd.NewMetric(name, help, func(s *Stats, put httpd.Put) {
		for p, w := range s.Store.Written {
			read(&w, put, p.String())
		}
	}, labels...)
}

// counted is one of the numbers that a tier counts for itself, by its name among its Counters.
func counted(name, help string, of tier.Place, counter string) httpd.Metric[Stats] {
	return httpd.NewMetric(name, help, func(s *Stats, put httpd.Put) {
		if n, ok := s.Store.Tiers[of].Counters[counter]; ok {
			put(float64(n))
		}
	})
}

// countedBy is several of them, told apart by a label; values has that of each counter.
func countedBy(name, help string, of tier.Place, label string, values map[string]string) httpd.Metric[Stats] {
	return httpd.NewMetric(name, help, func(s *Stats, put httpd.Put) {
		for counter, value := range values {
			if n, ok := s.Store.Tiers[of].Counters[counter]; ok {
				put(float64(n), value)
			}
		}
	}, label)
}

// ofPath is a number of each folder of the disk tier.
func ofPath(name, help, counter string) httpd.Metric[Stats] {
	return httpd.NewMetric(name, help, func(s *Stats, put httpd.Put) {
		for _, p := range s.Store.Tiers[tier.Disk].Paths {
			if n, ok := p.Counters[counter]; ok {
				put(float64(n), p.Path)
			}
		}
	}, "path")
}

func ofFront(name, help string, read func(s *resp.Stats, put httpd.Put, front string), labels ...string) httpd.Metric[Stats] {
	return httpd.NewMetric(name, help, func(s *Stats, put httpd.Put) {
		if s.RESP != nil {
			read(s.RESP, put, config.FrontRESP)
		}
	}, labels...)
}

// Describe implements prometheus.Collector. The set of label values grows, so
// that nothing can be promised beforehand.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	st := m.daemon.stats()
	httpd.Collect(ch, prefix, exported, &st)
}
