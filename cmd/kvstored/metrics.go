package main

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/lm"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// daemonStats is what `kvstored stats` shows; field names are stable.
type daemonStats struct {
	Version       string       `json:"version"`
	UptimeSeconds float64      `json:"uptime_seconds"`
	Config        configStats  `json:"config"`
	Arena         arenaStats   `json:"arena"`
	Memory        budget.Stats `json:"memory"` // of clients, outside the arena
	Server        server.Stats `json:"server"`
	Store         storeStats   `json:"store"`
	RESP          *resp.Stats  `json:"resp,omitempty"` // of front ends that are on
	LM            *lm.Stats    `json:"lm,omitempty"`
}

type arenaStats struct {
	CapacityBytes    int64 `json:"capacity_bytes"`
	UsedBytes        int64 `json:"used_bytes"`
	LargestFreeBytes int64 `json:"largest_free_bytes"`
	Blocks           int64 `json:"blocks"`
	HugeBytes        int64 `json:"huge_bytes"`
	Locked           bool  `json:"locked"`
	QuarantineBytes  int64 `json:"quarantine_bytes"`
}

type storeStats struct {
	Recovering     bool                        `json:"recovering"`
	RecoverFailed  uint64                      `json:"recover_failed"` // scans of the disk tier
	Chunks         int64                       `json:"chunks"`
	Placeholders   int64                       `json:"placeholders"`
	IndexBytes     int64                       `json:"index_bytes"`
	ProtectedBytes int64                       `json:"protected_bytes"`
	ClassBytes     map[string]int64            `json:"class_bytes"`
	Inconsistent   uint64                      `json:"inconsistent_chunks"`
	Corrupt        uint64                      `json:"corrupt_in_dram"`
	Replaced       uint64                      `json:"replaced_below"` // older bytes under a key that gave way
	Mismatches     map[string]uint64           `json:"mismatches"`     // by where they were found
	Tiers          map[tier.Place]tier.Stats   `json:"tiers"`
	Loads          map[tier.Place]tier.Volume  `json:"loads"`
	LoadFailed     map[tier.Place]uint64       `json:"loads_failed"`
	Written        map[tier.Place]tier.Written `json:"written"`
}

// statsJSON is what a client gets; an administrator's has the configuration.
func (d *daemon) statsJSON(r wire.Rights) ([]byte, error) {
	st := d.stats()
	if r&wire.RightAdmin != 0 {
		var err error
		if st.Config, err = d.reloads.stats(true); err != nil {
			return nil, err
		}
	}
	return json.Marshal(st)
}

func (d *daemon) stats() daemonStats {
	a, s := d.arena.Stats(), d.stack.Stats()
	out := daemonStats{
		Version: version(), UptimeSeconds: time.Since(d.started).Seconds(),
		Arena: arenaStats{
			CapacityBytes: a.CapacityBytes, UsedBytes: a.UsedBytes, LargestFreeBytes: a.LargestFreeBytes,
			Blocks: a.Blocks, HugeBytes: a.HugeBytes, Locked: a.Locked,
		},
		Memory: d.budget.Stats(),
		Server: d.server.Stats(),
		Store: storeStats{
			Recovering: s.Recovering, RecoverFailed: s.RecoverFailed, Chunks: s.Chunks, Placeholders: s.Placeholders, IndexBytes: s.IndexBytes,
			ProtectedBytes: s.Ledger.ProtectedBytes, ClassBytes: make(map[string]int64),
			Inconsistent: s.Inconsistent, Corrupt: s.Corrupt, Replaced: s.Replaced,
			Tiers: s.Tiers, Loads: s.Loads, LoadFailed: s.LoadFailed, Written: s.Written,
		},
	}
	out.Config, _ = d.reloads.stats(false) // which prints nothing that could fail
	out.Store.Mismatches = mismatches(&s)
	for c, n := range s.Ledger.ClassBytes {
		out.Store.ClassBytes[ledger.Class(c).String()] = n
	}
	d.frontStats(&out)
	if d.quarantine != nil {
		out.Arena.QuarantineBytes = d.quarantine.Stats().Bytes
	}
	return out
}

// mismatches counts payloads and records that were not what they should be,
// by where that was found.
func mismatches(s *tier.StackStats) map[string]uint64 {
	out := map[string]uint64{"get": s.Corrupt - s.CorruptDown, "demote": s.CorruptDown}
	for p, t := range s.Tiers {
		if p == tier.CPU {
			continue
		}
		out["promote"] += t.Corrupt - t.Counters["corrupt_scrub"]
		out["scrub"] += t.Counters["corrupt_scrub"]
		out["recovery"] += t.Counters["corrupt_recovery"]
	}
	return out
}

// metrics are the daemon's numbers for Prometheus. Counters live where they
// are counted; this only reads them.
type metrics struct {
	daemon   *daemon
	registry *prometheus.Registry
	took     [256]prometheus.Observer // by operation
	tierTook *prometheus.HistogramVec
}

func newMetrics(d *daemon) *metrics {
	m := &metrics{daemon: d, registry: prometheus.NewRegistry()}
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kvstored_request_seconds",
		Help: "Time from reading a request to handing its answer to the socket; what waits is answered later.",
		// 1 us to 4 s in factors of 4.
		Buckets: prometheus.ExponentialBuckets(1e-6, 4, 12),
	}, []string{"op"})
	m.tierTook = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kvstored_tier_seconds",
		Help:    "Time of operations of a tier that succeeded, waiting in its queue included.",
		Buckets: prometheus.ExponentialBuckets(1e-5, 4, 12), // 10 us to 42 s
	}, []string{"tier", "op"})
	for op := range m.took {
		if wire.Op(op).Known() {
			m.took[op] = h.WithLabelValues(wire.Op(op).String())
		}
	}
	m.registry.MustRegister(h, m.tierTook, m, collectors.NewGoCollector(),
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

func (m *metrics) observe(op wire.Op, took time.Duration) {
	if o := m.took[op]; o != nil {
		o.Observe(took.Seconds())
	}
}
