package main

import (
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/kvstored/kvstored/key"
)

// promise is one that a daemon makes.
type promise string

// The promises, as their violations are called.
const (
	wrongBytes  promise = "bytes of another key or never committed"
	undeleted   promise = "deleted and found"
	unflushed   promise = "flushed and missing"
	twoValues   promise = "two values for a key"
	leaseBroken promise = "changed under a lease that ended ok"
)

// violation is one broken promise.
type violation struct {
	promise
	text string
}

// moment is a time of the wall clock in nanoseconds, the same for all
// processes of the machine. never is later than all.
type moment int64

const never = moment(math.MaxInt64)

// remembered is how many of the last events of a kind a key keeps: an earlier
// one says nothing that a later one does not say too, but for those that ran
// side by side.
const remembered = 64

// outcome is how a write ended.
type outcome uint8

const (
	unknown outcome = iota // the answer did not come: it may be there or not
	stored
	refused // its bytes were not taken
)

// write is an attempt to store one version.
type write struct {
	v          version
	begin, end moment // end is never while it may still take effect
	outcome    outcome
}

// span is the time that a call took; what a read saw is in v.
type span struct {
	begin, end moment
	v          version
}

// record is what happened to one key.
type record struct {
	writes   map[version]*write
	stored   []*write // acknowledged, in the order of their ends
	deletes  []span   // acknowledged
	deleting int      // begun and not ended
	touched  uint64   // deletions begun or ended
	last     moment   // when one ended last, acknowledged or not
	reads    []span
	must     bool // a flush has acknowledged it, and nothing has deleted it since
	log      []string
}

// history is what clients did and saw. It is safe for concurrent use.
type history struct {
	mu struct {
		sync.Mutex
		keys       map[key.Hash]*record
		violations []violation
		since      moment // what was stored before this, and not flushed, may be lost
		checks     counts
	}
}

// counts says how much was checked.
type counts struct {
	Reads, Musts, Flushes, Stored, Deleted int
}

func newHistory() *history {
	h := new(history)
	h.mu.keys = make(map[key.Hash]*record)
	return h
}

// of is called with the mutex held.
func (h *history) of(k key.Hash) *record {
	r := h.mu.keys[k]
	if r == nil {
		r = &record{writes: make(map[version]*write)}
		h.mu.keys[k] = r
	}
	return r
}

// writing implements writeLog.
func (h *history) writing(k key.Hash, v version, begin moment) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.of(k)
	r.writes[v] = &write{v: v, begin: begin, end: never}
	r.note("%d write %d begins", begin, v)
	return nil
}

// wrote implements writeLog. An unknown one that may still take effect ends
// with a restart.
func (h *history) wrote(k key.Hash, v version, end moment, how outcome) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.of(k)
	w := r.writes[v]
	w.end, w.outcome = end, how
	r.note("%d write %d ends: %d", end, v, how)
	if how == stored {
		r.stored = keep(r.stored, w)
		h.mu.checks.Stored++
	}
	return nil
}

// deleting notes that a deletion of keys is about to be sent.
func (h *history) deleting(ks []key.Hash, begin moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range ks {
		r := h.of(k)
		r.deleting++
		r.touched++
		r.must = false
		r.note("%d delete begins", begin)
	}
}

// deleted ends a deletion; one that failed may have deleted or not.
func (h *history) deleted(ks []key.Hash, begin, end moment, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range ks {
		r := h.of(k)
		r.deleting--
		r.touched++
		r.last = max(r.last, end)
		r.must = false
		if ok {
			r.deletes = keep(r.deletes, span{begin: begin, end: end})
			h.mu.checks.Deleted++
		}
		r.note("%d delete ends: %t", end, ok)
	}
}

// restarted ends the calls of the old process. Chunks stored before and not
// flushed may be lost. Begin is when the old process was sure to work
// last, end when it had ended.
func (h *history) restarted(end moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.since = end
	for _, r := range h.mu.keys {
		for v, w := range r.writes {
			if w.end == never && w.begin < end {
				w.end = end
			} else if w.outcome == refused {
				delete(r.writes, v)
			}
		}
		r.note("%d the daemon has ended", end)
	}
}

// emptied notes that DRAM was told to forget its chunks.
func (h *history) emptied(end moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.since = max(h.mu.since, end)
}

// promised notes a flush that was acknowledged whole and began at begin:
// every chunk stored before, and since DRAM last lost anything, must be found
// from now on.
func (h *history) promised(begin moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.checks.Flushes++
	for _, r := range h.mu.keys {
		if n := len(r.stored); n > 0 && r.deleting == 0 {
			w := r.stored[n-1]
			r.must = r.must || w.begin > max(h.mu.since, r.last) && w.end < begin
		}
	}
}

// stamp is how often deletions of each key have begun or ended.
func (h *history) stamp(ks []key.Hash) []uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]uint64, len(ks))
	for i, k := range ks {
		if r := h.of(k); r.deleting == 0 {
			out[i] = r.touched + 1
		}
	}
	return out
}

// found notes that keys were on disk after a flush: they must be from now on,
// where nothing was deleted since the stamp.
func (h *history) found(ks []key.Hash, stamp []uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, k := range ks {
		if r := h.of(k); r.deleting == 0 && stamp[i] == r.touched+1 {
			r.must = true
		}
	}
}

// musts is how many of the first keys must be there.
func (h *history) musts(ks []key.Hash) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, k := range ks {
		if !h.of(k).must {
			return i
		}
	}
	return len(ks)
}

// missing checks a prompt that has n chunks, where before said, before it was
// asked for, how many must be there. chunk is the first that is not.
func (h *history) missing(ks []key.Hash, before, n int, what string) {
	must := min(before, h.musts(ks))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.checks.Musts += must
	if n < must {
		h.violate(unflushed, ks[n], "%s: %d chunks there, %d were flushed", what, n, must)
	}
}

// read checks what a read returned that took from begin to end.
func (h *history) read(k key.Hash, b []byte, begin, end moment) {
	got, v, err := parse(b)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.checks.Reads++
	switch r := h.of(k); {
	case err != nil:
		h.violate(wrongBytes, k, "%v", err)
	case got != k:
		h.violate(wrongBytes, k, "version %d of key %x", v, got)
	default:
		h.judge(k, r, span{begin, end, v})
		r.reads = keep(r.reads, span{begin, end, v})
		r.note("%d to %d read %d", begin, end, v)
	}
}

// judge checks that a version may be seen by a read.
func (h *history) judge(k key.Hash, r *record, seen span) {
	w := r.writes[seen.v]
	switch {
	case w == nil || w.begin > seen.end:
		h.violate(wrongBytes, k, "version %d was never written", seen.v)
		return
	case w.outcome == refused:
		h.violate(wrongBytes, k, "version %d was refused", seen.v)
		return
	case r.deletedAfter(w.end, seen.begin):
		h.violate(undeleted, k, "version %d was deleted", seen.v)
	}
	for _, later := range r.stored {
		if later.v != seen.v && later.begin > w.end && later.end < seen.begin {
			h.violate(twoValues, k, "version %d is read after %d was stored", seen.v, later.v)
			return
		}
	}
	for _, other := range r.reads {
		if other.v != seen.v && other.begin > w.end && other.end < seen.begin {
			h.violate(twoValues, k, "version %d is read after %d was read", seen.v, other.v)
			return
		}
	}
}

// deletedAfter reports whether a deletion lies wholly between two moments.
func (r *record) deletedAfter(begin, end moment) bool {
	for _, d := range r.deletes {
		if d.begin > begin && d.end < end {
			return true
		}
	}
	return false
}

// broken notes that bytes under a lease were others in the end.
func (h *history) broken(k key.Hash, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violate(leaseBroken, k, "%s", text)
}

// violate is called with the mutex held.
func (h *history) violate(p promise, k key.Hash, format string, args ...any) {
	text := fmt.Sprintf("key %x: ", k) + fmt.Sprintf(format, args...)
	h.mu.violations = append(h.mu.violations, violation{p, text + "\n    " + strings.Join(h.of(k).log, "\n    ")})
}

// violations is those found so far.
func (h *history) violations() []violation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.violations
}

func (h *history) counts() counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.checks
}

// note keeps the last events of a key, for people to read.
func (r *record) note(format string, args ...any) {
	r.log = append(r.log, fmt.Sprintf(format, args...))
	if len(r.log) > remembered {
		r.log = append(r.log[:0], r.log[remembered/2:]...)
	}
}

// keep appends to a list that forgets its oldest.
func keep[T any](list []T, x T) []T {
	if len(list) == 2*remembered {
		list = append(list[:0], list[remembered:]...)
	}
	return append(list, x)
}
