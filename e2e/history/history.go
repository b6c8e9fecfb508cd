package history

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/kvstored/kvstored/key"
)

// promise is one that a daemon makes, by what breaks it.
type promise string

// The promises; rules has them all.
const (
	wrongBytes  promise = "bytes of another key or never committed"
	undeleted   promise = "deleted and found"
	unflushed   promise = "flushed and missing"
	twoValues   promise = "two values for a key"
	leaseBroken promise = "changed under a lease that ended ok"
	unread      promise = "found after a restart and not there to be read"
	overdue     promise = "past its end and found"
	unkept      promise = "committed before a kill and missing, with a keeper"
	givenUp     promise = "given up by a flush"
)

// rules are what is asked of every history, or of those of one configuration.
var rules = []struct {
	promise promise
	in      string // the configuration; "" for all
	what    string
}{
	{wrongBytes, "", "what is read is what was committed under its key, to the last byte"},
	{undeleted, "", "what was deleted, and the deletion acknowledged, is not read by who asks later"},
	{unflushed, "", "what a flush acknowledged and nothing deleted is there after the end of the process"},
	{twoValues, "", "no older value is read after a newer one was stored or read"},
	{leaseBroken, "", "bytes do not change under a lease that ends well"},
	{unread, "", "of a prompt, as many chunks can be read after a restart as a lookup finds"},
	{overdue, "aged", "what is past its max_age is found by nobody who asks later, also while the disk is scanned"},
	{givenUp, "", "a flush gives up nothing where the disk works, has room, and was not too slow for DRAM"},
	{unkept, "keeper", "what was committed a moment before the end of the process, flushed or not, is there after it"},
}

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
	age        time.Duration
	outcome    outcome
}

// over reports whether the chunk is past its end at a moment, if it was committed at all.
func (w *write) over(at moment) bool {
	return w.age > 0 && w.end != never && w.end+moment(w.age) < at
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
	must     promise // that is broken where it is missing; "" where it may be
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
	Reads, Musts, Flushes, Stored, Deleted, Asked, Compared int
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
func (h *history) writing(k key.Hash, v version, begin moment, age time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.of(k)
	r.writes[v] = &write{v: v, begin: begin, end: never, age: age}
	r.note("%d write %d begins, for %v", begin, v, age)
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
		r.must = ""
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
		r.must = ""
		if ok {
			r.deletes = keep(r.deletes, span{begin: begin, end: end})
			h.mu.checks.Deleted++
		}
		r.note("%d delete ends: %t", end, ok)
	}
}

// restarted ends the calls of the old process, at end. Chunks stored before, of which
// nobody has promised that they are there, may be lost.
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

// promised notes a promise about all that was stored before a moment, and since DRAM last
// lost anything, and has no end: it must be found from now on. A flush that was
// acknowledged whole promises so of what was stored before it began.
func (h *history) promised(by promise, before moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if by == unflushed {
		h.mu.checks.Flushes++
	}
	for _, r := range h.mu.keys {
		if n := len(r.stored); n > 0 && r.deleting == 0 && r.must == "" {
			if w := r.stored[n-1]; w.begin > max(h.mu.since, r.last) && w.end < before && w.age == 0 {
				r.must = by
			}
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

// found notes that keys without ends were on disk after a flush: they must be from now on,
// where nothing was deleted since the stamp.
func (h *history) found(ks []key.Hash, stamp []uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, k := range ks {
		if r := h.of(k); r.deleting == 0 && stamp[i] == r.touched+1 {
			r.must = unflushed
		}
	}
}

// musts is how many of the first keys must be there.
func (h *history) musts(ks []key.Hash) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, k := range ks {
		if h.of(k).must == "" {
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
		h.violate(h.of(ks[n]).must, ks[n], "%s: %d chunks there, %d must be", what, n, must)
	}
}

// there checks that the first n chunks of a prompt, of which a question that began at begin
// was told, can still be there.
func (h *history) there(ks []key.Hash, n int, begin moment, what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range ks[:n] {
		last, ended := moment(0), false // when the last write is over
		for _, w := range h.of(k).writes {
			switch {
			case w.outcome == refused, h.of(k).deletedAfter(w.end, begin):
			case w.over(begin):
				last, ended = max(last, w.end+moment(w.age)), true
			default:
				last = never
			}
		}
		if h.mu.checks.Asked++; ended && last != never {
			h.violate(overdue, k, "%s: it is found %v after its end", what, time.Duration(begin-last))
			return // once a prompt
		}
	}
}

// compared checks that of n chunks, of which a lookup was told after a restart, as many
// were read.
func (h *history) compared(ks []key.Hash, n, read int, what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.checks.Compared++
	if read < n {
		h.violate(unread, ks[read], "%s: %d chunks are found and %d read", what, n, read)
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
	case w.over(seen.begin):
		h.violate(overdue, k, "version %d is read %v after its end", seen.v, time.Duration(seen.begin-w.end)-w.age)
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

// flushed notes the answer to a flush in a life in which no chunk was dropped.
func (h *history) flushed(whole bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !whole {
		h.mu.violations = append(h.mu.violations, violation{givenUp, "the answer to a flush names chunks that the disk lacks"})
	}
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
