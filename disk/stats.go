package disk

import (
	"bytes"
	"cmp"
	"fmt"
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
	scrubbing                 atomic.Int64  // passes under way
	scrubBytes                atomic.Uint64
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
	u := t.segments.usage()
	return tier.Stats{
		Entries:          int64(l.Entries),
		PayloadBytes:     t.payload.Load(),
		UsedBytes:        u.used,
		CapacityBytes:    t.o.CapacityBytes - t.headroom.meta(),
		LargestFreeBytes: max(u.largest, min(t.o.SegmentBytes, t.headroom.growth(u.files))),
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
		Counters: t.counters(),
		Paths:    pathStats(t),
	}
}

func (t *instance) counters() map[string]uint64 {
	u := t.segments.usage()
	commits, committed := t.commits.Counts()
	_, databaseWrote := processBytes(t.db.Pid())
	read, wrote := processBytes(os.Getpid())
	var reads, writes, flying int
	var failed, off uint64
	for _, d := range t.devices() {
		r, w, f := d.Depths()
		reads, writes, flying = reads+r, writes+w, flying+f
		failed += d.Errors.Load()
	}
	for _, v := range t.volumes {
		off += bit(!v.works())
	}
	return map[string]uint64{
		"segments":      uint64(u.segments),
		"segment_bytes": atLeast0(u.files),
		"paths":         uint64(len(t.volumes)), "paths_missing": uint64(len(t.missing)), "paths_off": off,

		"extent_bytes_written": atLeast0(t.segments.written.Load()),
		"evicted_for_room":     t.count.evictedRoom.Load(),
		"evicted_ahead":        t.count.evictedAhead.Load(),
		"evicted_for_min_free": t.count.evictedFree.Load(),
		"evicted_for_database": t.count.evictedMeta.Load(),
		"evicted_for_entries":  t.count.evictedEntries.Load(),
		"io_timeouts":          t.count.timeouts.Load(),
		"put_errors":           t.count.putErrors.Load(),
		"corrupt_get":          t.count.corruptGet.Load(),
		"corrupt_scrub":        t.count.corruptScrub.Load(),
		"scrub_running":        uint64(t.count.scrubbing.Load()),
		"scrub_bytes":          t.count.scrubBytes.Load(),

		"badger_bytes_written": atLeast0(committed),
		"badger_file_bytes":    atLeast0(t.budget.files.Load()),
		"badger_held_bytes":    atLeast0(t.budget.held.Load()),
		"badger_reserve_bytes": atLeast0(t.headroom.meta()),
		"database_write_bytes": databaseWrote,
		"commits":              commits,
		"commit_queue":         uint64(t.commits.Queued()),

		"direct_io":           bit(!slices.ContainsFunc(t.volumes, func(v *volume) bool { return !v.folder.Direct() })),
		"process_read_bytes":  read,
		"process_write_bytes": wrote,
		"read_queue":          uint64(reads),
		"write_queue":         uint64(writes),
		"io_in_flight":        uint64(flying),
		"io_errors":           failed,

		"recovering":          bit(t.scan.active.Load()),
		"recover_scanned":     t.scan.records.Load(),
		"recover_lost":        t.scan.lost.Load(),
		"corrupt_recovery":    t.scan.damaged.Load(),
		"recover_newer":       t.scan.newer.Load(),
		"recover_evicted":     t.scan.evicted.Load(),
		"rebuild_bytes":       t.rebuilding.bytes.Load(),
		"rebuild_total_bytes": t.rebuilding.total.Load(),
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
