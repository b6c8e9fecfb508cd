package disk

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/kvstored/kvstored/tier"
)

// counters since the Tier was opened, of all its instances.
type counters struct {
	gets, getBytes            atomic.Uint64
	puts, putBytes, putErrors atomic.Uint64
	corruptGet, timeouts      atomic.Uint64
	corruptScrub              atomic.Uint64
	evictedRoom, evictedAhead atomic.Uint64 // for a payload that had no room; above the watermark
	evictedFree               atomic.Uint64 // for others on the file system
	evictedMeta               atomic.Uint64 // for the database
	evictedEntries            atomic.Uint64 // for Options.Entries
	compactions               atomic.Int64  // that were asked for
	scrubsBegun               atomic.Uint64
	scrubbing                 atomic.Int64  // passes under way
	scrubs, scrubBytes        atomic.Uint64 // passes that came to their end; bytes read by all
}

// Stats returns a snapshot; of a Tier that has never been open it is little. UsedBytes is
// how many bytes extents occupy; the counters tell how many the files and Badger take.
func (t *Tier) Stats() tier.Stats {
	i := t.now.Load()
	if i.segments == nil {
		return tier.Stats{CapacityBytes: t.o.CapacityBytes, Policy: i.ledger.PolicyName(), Quotas: i.ledger.Quotas(), Off: true}
	}
	st := i.stats()
	st.Off = t.Off()
	return st
}

func (t *instance) stats() tier.Stats {
	l := t.ledger.Stats()
	files, used, largest, segments := t.segments.usage()
	counters := make(map[string]uint64)
	for _, part := range []map[string]uint64{t.workCounters(), t.databaseCounters(), t.deviceCounters(), t.pathCounters(), t.scan.counters()} {
		maps.Copy(counters, part)
	}
	counters["segments"], counters["segment_bytes"] = uint64(segments), atLeast0(files)
	return tier.Stats{
		Entries:          int64(l.Entries),
		PayloadBytes:     t.payload.Load(),
		UsedBytes:        used,
		CapacityBytes:    t.o.CapacityBytes - t.space.meta(),
		LargestFreeBytes: max(largest, min(t.o.SegmentBytes, t.space.growth(files))),
		Gets:             t.count.gets.Load(),
		GetBytes:         t.count.getBytes.Load(),
		Puts:             t.count.puts.Load(),
		PutBytes:         t.count.putBytes.Load(),
		Evictions:        l.Evictions,
		EvictedBytes:     l.EvictedBytes,
		EvictedUnused:    l.EvictedUnused, EvictedUnusedBytes: l.EvictedUnusedBytes,
		Corrupt:  t.count.corruptGet.Load() + t.count.corruptScrub.Load(),
		Policy:   t.ledger.PolicyName(),
		Steps:    l.Steps,
		Quotas:   t.ledger.Quotas(),
		Counters: counters,
		Paths:    pathStats(t),
	}
}

// workCounters are those of what the tier did.
func (t *instance) workCounters() map[string]uint64 {
	return map[string]uint64{
		"extent_bytes_written": atLeast0(t.segments.written.Load()),
		"evicted_for_room":     t.count.evictedRoom.Load(),
		"evicted_ahead":        t.count.evictedAhead.Load(),
		"evicted_for_min_free": t.count.evictedFree.Load(),
		"evicted_for_database": t.count.evictedMeta.Load(),
		"evicted_for_entries":  t.count.evictedEntries.Load(),
		"entries_most":         uint64(t.o.Entries),
		"io_timeouts":          t.count.timeouts.Load(),
		"put_errors":           t.count.putErrors.Load(),
		"corrupt_get":          t.count.corruptGet.Load(),
		"corrupt_scrub":        t.count.corruptScrub.Load(),
		"scrub_begun":          t.count.scrubsBegun.Load(),
		"scrub_running":        uint64(t.count.scrubbing.Load()),
		"scrub_passes":         t.count.scrubs.Load(),
		"scrub_bytes":          t.count.scrubBytes.Load(),
		"rebuild_bytes":        t.rebuilding.bytes.Load(),
		"rebuild_total_bytes":  t.rebuilding.total.Load(),
	}
}

// databaseCounters are those of the database and its commits.
func (t *instance) databaseCounters() map[string]uint64 {
	commits, written := t.commits.Counts()
	read, wrote := processBytes(t.db.Pid())
	return map[string]uint64{
		"badger_bytes_written": atLeast0(written),
		"badger_file_bytes":    atLeast0(t.share.files.Load()),
		"badger_held_bytes":    atLeast0(t.share.held.Load()),
		"badger_reserve_bytes": atLeast0(t.space.meta()),
		"badger_compactions":   atLeast0(t.count.compactions.Load()),
		"database_read_bytes":  read,
		"database_write_bytes": wrote,
		"commits":              commits,
		"commit_queue":         uint64(t.commits.Queued()),
	}
}

// deviceCounters are those of the queues, and of the I/O of this process.
func (t *instance) deviceCounters() map[string]uint64 {
	var reads, writes, flying int
	var failed uint64
	for _, d := range t.devices() {
		r, w, f := d.Depths()
		reads, writes, flying = reads+r, writes+w, flying+f
		failed += d.Errors.Load()
	}
	read, wrote := processBytes(os.Getpid())
	return map[string]uint64{
		"direct_io":           bit(!slices.ContainsFunc(t.volumes, func(v *volume) bool { return !v.folder.Direct() })),
		"process_read_bytes":  read,
		"process_write_bytes": wrote,
		"read_queue":          uint64(reads),
		"write_queue":         uint64(writes),
		"io_in_flight":        uint64(flying),
		"io_errors":           failed,
	}
}

// counters are those of the recovery.
func (s *scan) counters() map[string]uint64 {
	return map[string]uint64{
		"recovering":       bit(s.active.Load()),
		"recover_scanned":  s.records.Load(),
		"recover_lost":     s.lost.Load(),
		"corrupt_recovery": s.damaged.Load(),
		"recover_newer":    s.newer.Load(),
		"recover_evicted":  s.evicted.Load(),
	}
}

// atLeast0 is a number that another goroutine may just have made negative.
func atLeast0(v int64) uint64 { return uint64(max(v, 0)) }

func bit(on bool) uint64 {
	if on {
		return 1
	}
	return 0
}

// pathStats are the numbers of each path that is there.
func pathStats(t *instance) []tier.PathStats {
	list := make([]tier.PathStats, len(t.volumes))
	for i, v := range t.volumes {
		u := t.segments.usageOf(v)
		list[i] = tier.PathStats{Path: v.dir, Counters: map[string]uint64{
			"io_depth":        uint64(v.dev.Depth),
			"probed_read":     v.probed[0], // bytes a second; 0: not probed
			"probed_write":    v.probed[1],
			"segment_bytes":   uint64(u.files),
			"used_bytes":      uint64(u.used),
			"available_bytes": uint64(max(0, v.fs.available.Load())),
			"off":             bit(!v.works()),
		}}
	}
	slices.SortFunc(list, func(a, b tier.PathStats) int {
		return cmp.Compare(slices.Index(t.o.Paths, a.Path), slices.Index(t.o.Paths, b.Path))
	})
	return list
}

// pathCounters count the paths by their state.
func (t *instance) pathCounters() map[string]uint64 {
	off := uint64(0)
	for _, v := range t.volumes {
		off += bit(!v.works())
	}
	return map[string]uint64{"paths": uint64(len(t.volumes)), "paths_missing": uint64(len(t.missing)), "paths_off": off}
}

// works reports whether the path is not left alone.
func (v *volume) works() bool { return v.dev.Reading.Well() && v.dev.Writing.Well() }

// processBytes is how many bytes a process has caused storage to read and write, as the
// kernel counts: this one the segments and little else, that of the database
// its files, since it was opened last.
func processBytes(pid int) (read, written uint64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, 0 // not told
	}
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(line, []byte(": "))
		n, _ := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
		switch string(name) {
		case "read_bytes":
			read = n
		case "write_bytes":
			written = n
		}
	}
	return read, written
}
