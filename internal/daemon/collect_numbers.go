package daemon

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvstored/kvstored/tier"
)

// number is how one of the numbers that a tier counts for itself is exported. The zero
// number is not exported, as another metric has it.
type number struct {
	desc   *prometheus.Desc
	labels []string // values
}

// counts reports whether it only grows.
func (n number) counts() bool { return strings.Contains(n.desc.String(), `_total"`) }

// of is a number without labels.
func of(name, help string) number { return number{desc: desc(name, help)} }

// each is numbers of one metric, told apart by a label.
func each(into map[string]number, d *prometheus.Desc, values map[string]string) {
	for name, value := range values {
		into[name] = number{d, []string{value}}
	}
}

// numbers are those of each tier, by their names among its Counters.
var numbers = map[tier.Place]map[string]number{
	tier.CPU:    dramNumbers(),
	tier.Disk:   diskNumbers(),
	tier.Remote: remoteNumbers(),
}

// breakerNumbers are those of the circuit breaker of a tier.
var breakerNumbers = map[string]*prometheus.Desc{
	"switched_off":      desc("tier_switched_off_total", "Times that a tier was switched off after failures.", "tier"),
	"refused_while_off": desc("tier_refused_while_off_total", "Calls of a tier refused because it was off.", "tier"),
}

// pathNumbers are those of each folder of the disk tier.
var pathNumbers = map[string]*prometheus.Desc{
	"io_depth":        desc("disk_path_io_depth", "Requests that a folder's device is given at a time.", "path"),
	"segment_bytes":   desc("disk_path_segment_bytes", "Bytes of the segments in a folder.", "path"),
	"used_bytes":      desc("disk_path_used_bytes", "Bytes that chunks occupy in a folder.", "path"),
	"available_bytes": desc("disk_path_available_bytes", "Bytes free in a folder's file system.", "path"),
	"off":             desc("disk_path_off", "1 while a folder is left alone after failures.", "path"),
}

func dramNumbers() map[string]number {
	return map[string]number{
		"protected_bytes": {}, // protected_bytes
		"refused":         of("dram_refused_total", "Reservations that DRAM had no room for."),
		"moved":           of("dram_moved_blocks_total", "Blocks moved to make room in one piece."),
		"moved_bytes":     of("dram_moved_bytes_total", "Bytes of the blocks moved."),
	}
}

func diskNumbers() map[string]number {
	n := map[string]number{
		"corrupt_get": {}, "corrupt_scrub": {}, "corrupt_recovery": {}, // corrupt_total and mismatches_total
		"recovering":           of("disk_recovering", "1 while the records of an earlier process are read."),
		"extent_bytes_written": of("disk_extent_written_bytes_total", "Bytes of payloads and their headers written to segments."),
		"entries_most":         of("disk_entries_limit", "Chunks that the disk tier may have (limits.chunks)."),
		"put_errors":           of("disk_put_errors_total", "Puts that failed."),
		"scrub_begun":          of("disk_scrubs_begun_total", "Passes over everything on disk that were begun."),
		"scrub_running":        of("disk_scrubs_running", "Passes under way."),
		"scrub_passes":         of("disk_scrubs_total", "Passes that came to their end."),
		"scrub_bytes":          of("disk_scrubbed_bytes_total", "Bytes read by passes."),
		"badger_bytes_written": of("disk_records_written_bytes_total", "Bytes of records given to the database."),
		"badger_file_bytes":    of("disk_database_bytes", "Bytes of the database's files."),
		"badger_held_bytes":    of("disk_database_held_bytes", "Bytes that the database takes at rest."),
		"badger_reserve_bytes": of("disk_database_reserve_bytes", "Bytes of disk.capacity set aside for the database."),
		"badger_compactions":   of("disk_database_compactions_total", "Compactions for want of room."),
		"database_read_bytes":  of("disk_database_read_bytes_total", "Bytes that the database's process has read, as the kernel counts; anew where the database is opened again."),
		"database_write_bytes": of("disk_database_written_bytes_total", "Bytes that the database's process has written, as the kernel counts; anew where the database is opened again."),
		"process_read_bytes":   of("disk_process_read_bytes_total", "Bytes that the daemon's process has read, as the kernel counts."),
		"process_write_bytes":  of("disk_process_written_bytes_total", "Bytes that the daemon's process has written, as the kernel counts."),
		"commits":              of("disk_commits_total", "Transactions of the database."),
		"commit_queue":         of("disk_commit_queue", "Records that wait for a transaction."),
		"direct_io":            of("disk_direct_io", "1 if all folders do direct I/O."),
		"read_queue":           of("disk_read_queue", "Reads that wait for a device."),
		"write_queue":          of("disk_write_queue", "Writes that wait for a device."),
		"io_in_flight":         of("disk_io_in_flight", "Requests that devices are at."),
		"io_errors":            of("disk_io_errors_total", "Requests that a device failed."),
		"io_timeouts":          of("disk_io_timeouts_total", "Requests that a device did not answer in time."),
		"segments":             of("disk_segments", "Segment files."),
		"segment_bytes":        of("disk_segment_bytes", "Bytes of segment files."),
		"paths":                of("disk_paths", "Folders that are there."),
		"paths_missing":        of("disk_paths_missing", "Folders of disk.paths that are missing."),
		"paths_off":            of("disk_paths_off", "Folders that are left alone after failures."),
	}
	each(n, desc("disk_evicted_chunks_total", "Chunks evicted from disk, by what for: room for a payload, ahead of need, the file system's others, the database, limits.chunks.", "reason"), map[string]string{
		"evicted_for_room": "room", "evicted_ahead": "ahead", "evicted_for_min_free": "min_free",
		"evicted_for_database": "database", "evicted_for_entries": "entries",
	})
	each(n, desc("disk_recovered_records_total", "Records of an earlier process, by what came of them: scanned (all), lost, newer, evicted.", "result"), map[string]string{
		"recover_scanned": "scanned", "recover_lost": "lost", "recover_newer": "newer", "recover_evicted": "evicted",
	})
	return n
}

func remoteNumbers() map[string]number {
	n := map[string]number{
		"received_bytes":   of("remote_received_bytes_total", "Body bytes received from the object store."),
		"sent_bytes":       of("remote_sent_bytes_total", "Body bytes sent to it."),
		"wasted_bytes":     of("remote_wasted_bytes_total", "Of these two, bytes moved for nothing."),
		"puts_present":     of("remote_puts_present_total", "Puts of objects that were there already."),
		"puts_other_bytes": of("remote_puts_differ_total", "Of these, puts with other bytes, which are not stored."),
		"puts_occupied":    of("remote_puts_occupied_total", "Puts whose name another kind of object had."),
		"gets_stale":       of("remote_gets_stale_total", "Gets of objects that were thought to be there."),
		"retries":          of("remote_retries_total", "Requests sent again."),
		"slow_downs":       of("remote_slow_downs_total", "Answers that asked for fewer requests."),
		"connect_failures": of("remote_connect_failures_total", "Connections that failed."),
	}
	each(n, desc("remote_requests_total", "Requests to the object store.", "kind"), map[string]string{
		"get_requests": "get", "put_requests": "put", "head_requests": "head", "list_requests": "list", "delete_requests": "delete",
	})
	return n
}

// collectNumbers exports what a tier counts for itself.
func collectNumbers(p tier.Place, t *tier.Stats, gauge gaugeFunc, counter counterFunc) {
	known := numbers[p]
	for n, v := range t.Counters {
		if d := breakerNumbers[n]; d != nil {
			counter(d, v, p.String())
			continue
		}
		switch k := known[n]; {
		case k.desc == nil:
		case k.counts():
			counter(k.desc, v, k.labels...)
		default:
			gauge(k.desc, float64(v), k.labels...)
		}
	}
	for _, p := range t.Paths {
		for n, v := range p.Counters {
			if d := pathNumbers[n]; d != nil {
				gauge(d, float64(v), p.Path)
			}
		}
	}
}
