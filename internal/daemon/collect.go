package daemon

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/metric"
	"github.com/kvstored/kvstored/internal/version"
	"github.com/kvstored/kvstored/tier"
)

// exported are all metrics of the daemon.
var exported = metric.Set{Prefix: "kvstored_"}

// desc describes one. It is for variables of the package only.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return exported.Desc(name, help, labels...)
}

var (
	descUptime      = desc("uptime_seconds", "Time since the daemon started.")
	descLostLines   = desc("log_lost_lines_total", "Lines of the log that were lost, because nothing took them from standard error.")
	descReloads     = desc("config_reloads_total", "Reloads of the configuration file that were asked for, by what came of them.", "result")
	descReloadOK    = desc("config_last_reload_successful", "1 if the last reload of the configuration was applied, or there was none.")
	descReloadedAt  = desc("config_last_reload_success_timestamp_seconds", "When the running configuration was loaded, at the start or by a reload.")
	descReady       = desc("ready", "1 once everything an earlier process left has been found.")
	descConnections = desc("connections", "Clients connected now.")
	descMemory      = desc("client_memory_bytes", "Memory that clients cost now outside DRAM.")
	descMemoryMost  = desc("client_memory_limit_bytes", "What they may cost.")
	descClosed      = desc("connections_closed_total", "Connections closed that their clients would have kept.", "front", "reason")
	descRefused     = desc("connections_refused_total", "Connections that were refused, also those of front ends: too many (connections, uid_connections), or hello failed, or no memory.", "reason")
	descRequests    = desc("requests_total", "Requests answered.")
	descErrors      = desc("request_errors_total", "Requests refused or failed, by operation and by the code of the reply.", "op", "code")
	descMalformed   = desc("malformed_frames_total", "Frames that did not follow the protocol.")
	descLeases      = desc("leases", "Read leases held now.")
	descRevoked     = desc("revoked_total", "Leases and fills taken back because they grew too old.")
	descAskedTok    = desc("asked_tokens_total", "Tokens of prompts asked for.")
	descMissedTok   = desc("missed_tokens_total", "Tokens of prompts asked for that were not in a ready prefix, by why its first missing chunk is missing, and the tier that had or declined it.", "tier", "reason")
	descHitTok      = desc("hit_tokens_total", "Tokens in ready prefixes, by the tier they were found in.", "tier")
	descHitChunks   = desc("hit_chunks_total", "Chunks in ready prefixes, by the tier they were found in.", "tier")
	descDiffer      = desc("puts_differ_total", "Chunks that a client had other bytes for, or another length, than are stored under their key, which stay; by space.", "space")
	descStored      = desc("stored_chunks_total", "Chunks committed by clients.")
	descStoredBytes = desc("stored_bytes_total", "Payload bytes committed by clients.")

	descRetained = desc("retained_bytes", "Payload that clients have asked to be kept.")
	descRetains  = desc("retained_chunks_total", "Chunks that a client has asked to be kept (given), and those let go of because they were larger than expected (over_budget).", "outcome")

	descScanFailed   = desc("disk_scan_failures_total", "Scans of the disk tier that failed; it is served without its old contents.")
	descChunks       = desc("index_chunks", "Chunks known in some tier.")
	descPlaceholders = desc("index_placeholders", "Nodes of the index whose chunk is in no tier.")
	descIndexBytes   = desc("index_bytes", "Memory of the index.")
	descProtected    = desc("protected_bytes", "Bytes in DRAM that may not be evicted now.")
	descClass        = desc("budget_bytes", "Bytes in DRAM held, by what for.", "class")
	descCorrupt      = desc("corrupt_total", "Chunks dropped because their bytes were wrong.", "tier")

	descLost       = desc("usable_lost_tokens_total", "Tokens of prompts of hybrid models that the full groups had and that could not be used, by the kind of the group that cut them off, and why what it needs was not there: not stored as far as is known (never), gone (evicted), or not up at the deadline (late).", "group", "reason")
	descBoundaries = desc("boundaries", "Lengths at which prompts of hybrid models can be used now, as far as they were asked for.")
	descPieces     = desc("boundary_pieces", "Windows, states and ends that these and some others need.")
	descUncounted  = desc("boundaries_uncounted_total", "Lengths that were not counted, for want of room or as they need too much.")
	descGroup      = desc("group_chunks", "Chunks of hybrid models in a tier, by the kind of their group.", "tier", "group")
	descGroupBytes = desc("group_bytes", "Bytes that these occupy.", "tier", "group")
	descGroupDead  = desc("group_dead_bytes", "Of these, bytes that go first: no usable length needs them, or their client is done with them.", "tier", "group")

	descAged    = desc("aged_chunks", "Chunks with a bound on their age.")
	descAgedOut = desc("aged_out_total", "Chunks removed because they had become as old as they may.")

	descMismatches = desc("mismatches_total", "Payloads and records that were not what was stored, by where that was found.", "place")

	descEntries     = desc("tier_entries", "Chunks in a tier.", "tier")
	descUsed        = desc("tier_used_bytes", "Bytes a tier's chunks occupy.", "tier")
	descCapacity    = desc("tier_capacity_bytes", "What a tier may occupy.", "tier")
	descLargestFree = desc("tier_largest_free_bytes", "Largest free run of a tier.", "tier")
	descLargestPart = desc("tier_largest_free_ratio", "Largest free run of a tier, of what is free; absent where nothing is.", "tier")
	descSteps       = desc("tier_eviction_steps_total", "What the policies inspected to find victims.", "tier")
	descQuotaUsed   = desc("quota_used_bytes", "Bytes of the spaces under a quota.", "tier", "match")
	descQuota       = desc("quota_bytes", "What they may occupy.", "tier", "match")
	descQuotaOut    = desc("quota_evictions_total", "Chunks evicted because their own space was over its quota.", "tier", "match")
	descQuotaNo     = desc("quota_refused_total", "Chunks that had no room under their quota.", "tier", "match")
	descEvictions   = desc("tier_evictions_total", "Chunks evicted.", "tier")
	descUnused      = desc("tier_evicted_unused_chunks_total", "Of the chunks evicted, those that no request asked for after they had come to the tier.", "tier")
	descUnusedBytes = desc("tier_evicted_unused_bytes_total", "Bytes of these.", "tier")
	descEvicted     = desc("tier_evicted_bytes_total", "Bytes evicted.", "tier")
	descGetBytes    = desc("tier_read_bytes_total", "Payload bytes read from a tier.", "tier")
	descPutBytes    = desc("tier_written_bytes_total", "Payload bytes written to a tier.", "tier")
	descOff         = desc("tier_off", "1 while a tier is switched off after failures.", "tier")

	descLoads      = desc("loads_total", "Chunks promoted to DRAM.", "tier")
	descLoadFailed = desc("load_failures_total", "Loads that a tier failed.", "tier")
	descWaiting    = desc("write_waiting_chunks", "Chunks not yet written below.", "tier")
	descHeld       = desc("write_held_bytes", "Bytes not yet written below that wait until DRAM evicts them (write.mode back, or auto over a full disk).", "tier")
	descMissed     = desc("write_missed_chunks", "Of the chunks that were dropped, those that are offered again when the tier works.", "tier")
	descDropped    = desc("write_dropped_chunks_total", "Chunks not written below, by reason.", "tier", "reason")
)

// Describe implements prometheus.Collector. The set of label values grows, so
// that nothing can be promised beforehand.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	st := m.daemon.stats()
	gauge, counter := metric.Out(ch).Gauge, metric.Out(ch).Counter
	gauge(descBuild, 1, version.String(), runtime.Version())
	gauge(descUptime, st.UptimeSeconds)
	ready := 1.0
	if st.Store.Recovering {
		ready = 0
	}
	gauge(descReady, ready)
	lost := uint64(0)
	if m.daemon.lostLines != nil {
		lost = m.daemon.lostLines()
	}
	counter(descLostLines, lost)
	collectConfig(&st.Config, gauge, counter)
	collectServer(&st, gauge, counter)
	collectFronts(&st, gauge, counter)
	collectEvents(st.Events, counter)
	if w := m.daemon.sample; w != nil {
		collectSample(w, metric.Out(ch))
	}
	collectStore(&st.Store, gauge, counter)
	for p, t := range st.Store.Tiers {
		collectTier(p, &t, gauge, counter)
	}
}

func collectConfig(c *admin.Config, gauge gaugeFunc, counter counterFunc) {
	counter(descReloads, c.Reloads, "ok")
	counter(descReloads, c.ReloadsBad, "failed")
	ok := 0.0
	if c.LastReloadOK {
		ok = 1
	}
	gauge(descReloadOK, ok)
	gauge(descReloadedAt, float64(c.Loaded.UnixMilli())/1000)
}

type gaugeFunc = func(d *prometheus.Desc, v float64, labels ...string)
type counterFunc = func(d *prometheus.Desc, v uint64, labels ...string)

func collectServer(st *Stats, gauge gaugeFunc, counter counterFunc) {
	s := &st.Server
	gauge(descConnections, float64(s.Connections))
	gauge(descMemory, float64(st.Memory.UsedBytes))
	gauge(descMemoryMost, float64(st.Memory.LimitBytes))
	for front, reasons := range st.Memory.Closed {
		for reason, n := range reasons {
			counter(descClosed, n, front, reason)
		}
	}
	for reason, n := range s.RefusedBy {
		counter(descRefused, n, reason)
	}
	gauge(descLeases, float64(s.LeasesLive))
	counter(descRequests, s.Requests)
	for _, e := range s.ErrorsBy {
		counter(descErrors, e.Requests, e.Op, e.Code)
	}
	counter(descMalformed, s.Malformed)
	counter(descRevoked, s.Revoked)
	counter(descAskedTok, s.AskedTokens)
	for _, m := range s.Missed.Missed {
		counter(descMissedTok, m.Tokens, m.Tier, m.Reason)
	}
	collectModels(s.Models, counter)
	for space, n := range s.DiffersBySpace {
		counter(descDiffer, n, space)
	}
	counter(descStored, s.StoredChunks)
	counter(descStoredBytes, s.StoredBytes)
	gauge(descRetained, float64(s.Retained.Bytes))
	counter(descRetains, s.Retained.Given, "given")
	counter(descRetains, s.Retained.OverBudget, "over_budget")
	for _, l := range s.Lost {
		counter(descLost, l.Tokens, l.Group, l.Reason)
	}
	for p, n := range s.HitTokens {
		counter(descHitTok, n, p.String())
	}
	for p, n := range s.HitChunks {
		counter(descHitChunks, n, p.String())
	}
}

func collectStore(s *StoreStats, gauge gaugeFunc, counter counterFunc) {
	counter(descScanFailed, s.RecoverFailed)
	gauge(descChunks, float64(s.Chunks))
	gauge(descPlaceholders, float64(s.Placeholders))
	gauge(descIndexBytes, float64(s.IndexBytes))
	gauge(descProtected, float64(s.ProtectedBytes))
	gauge(descAged, float64(s.Aged))
	counter(descAgedOut, s.AgedOut)
	gauge(descBoundaries, float64(s.Boundaries.Boundaries))
	gauge(descPieces, float64(s.Boundaries.Pieces))
	counter(descUncounted, s.Boundaries.Uncounted)
	for p, groups := range s.Groups {
		for _, g := range groups {
			gauge(descGroup, float64(g.Chunks), p.String(), g.Kind)
			gauge(descGroupBytes, float64(g.Bytes), p.String(), g.Kind)
			gauge(descGroupDead, float64(g.DeadBytes), p.String(), g.Kind)
		}
	}
	for class, n := range s.ClassBytes {
		gauge(descClass, float64(n), class)
	}
	for p, n := range s.Loads {
		counter(descLoads, n.Chunks, p.String())
	}
	for p, n := range s.LoadFailed {
		counter(descLoadFailed, n, p.String())
	}
	for p, w := range s.Written {
		gauge(descWaiting, float64(w.Waiting), p.String())
		gauge(descHeld, float64(w.HeldBytes), p.String())
		gauge(descMissed, float64(w.Missed), p.String())
		for r, v := range w.Dropped {
			counter(descDropped, v.Chunks, p.String(), r.String())
		}
		counter(descDropped, w.Filtered.Chunks, p.String(), "min_hits")
	}
	counter(descCorrupt, s.Corrupt, tier.CPU.String())
	for place, n := range s.Mismatches {
		counter(descMismatches, n, place)
	}
}

func collectTier(p tier.Place, t *tier.Stats, gauge gaugeFunc, counter counterFunc) {
	name := p.String()
	gauge(descEntries, float64(t.Entries), name)
	gauge(descUsed, float64(t.UsedBytes), name)
	gauge(descCapacity, float64(t.CapacityBytes), name)
	gauge(descLargestFree, float64(t.LargestFreeBytes), name)
	off := 0.0
	if t.Off {
		off = 1
	}
	gauge(descOff, off, name)
	if free := t.CapacityBytes - t.UsedBytes; free > 0 {
		gauge(descLargestPart, min(1, float64(t.LargestFreeBytes)/float64(free)), name)
	}
	counter(descSteps, t.Steps, name)
	for _, q := range t.Quotas {
		gauge(descQuota, float64(q.QuotaBytes), name, q.Match)
		gauge(descQuotaUsed, float64(q.UsedBytes), name, q.Match)
		counter(descQuotaOut, q.Evictions, name, q.Match)
		counter(descQuotaNo, q.Refused, name, q.Match)
	}
	counter(descEvictions, t.Evictions, name)
	counter(descEvicted, t.EvictedBytes, name)
	counter(descUnused, t.EvictedUnused, name)
	counter(descUnusedBytes, t.EvictedUnusedBytes, name)
	counter(descGetBytes, t.GetBytes, name)
	counter(descPutBytes, t.PutBytes, name)
	if p != tier.CPU {
		counter(descCorrupt, t.Corrupt, name)
	}
	collectNumbers(p, t, gauge, counter)
}
