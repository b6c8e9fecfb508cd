package writeback

import (
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// state is where a chunk is on its way into a tier.
//
//	commit, touch, promotion           a budget has room         a worker is free
//	─────────────────────────▶ pending ────────────────▶ ready ───────────────▶ inFlight
//	                              │                        ▲ ▲                     │
//	                   evicted or │  victim of DRAM ───────┘ │ budget              ├─▶ done: stored,
//	                   deleted:   ▼                          │                     │   declined, refused
//	                   done                               offered ◀─ flush ─────┤   or void
//	                                                         ▲      of declined    ▼
//	                                                         └─ flush, works ─── retry
//
// Pending chunks are protected by nothing: DRAM may evict them, and then they are
// written as victims, from their block. Ready ones are held, or their block is. A
// chunk goes to retry where the tier was off or failed, and is offered again once
// the tier works, or a flush begins. See outcome for the ends.
type state uint8

const (
	done     state = iota
	pending        // in backlog.pending
	offered        // in backlog.offered
	ready          // in backlog.ready
	inFlight       // with a worker
	retry          // in backlog.retry
)

// item is a chunk that is to be written.
type item struct {
	rec     tier.Record // of an entry of DRAM without its checksum
	gen     uint64      // of flush
	state   state
	retried bool   // that it was dropped is counted
	failed  uint8  // how often the tier failed it
	came    uint32 // when it came to be pending, by rule.clock
	life    uint64 // of a victim of DRAM, whose block is all that is left; else 0
}

// backlog is what a writer has still to write, with its sums. The queue's mutex
// guards it. Items change their state by way of move only.
type backlog struct {
	pending fifo[item] // resident, not protected, in order of commit
	offered fifo[item] // to be written now; no client is held back for them
	ready   fifo[task] // protected
	retry   fifo[item] // the oldest first

	pendingBytes int64
	heldBytes    int64 // of ready and in flight, victims aside
	retryBytes   int64

	queued     map[key.Key]struct{} // nil, or what is in any state, victims aside
	peak       int                  // of queued
	open       map[uint64]int       // items by generation, those in retry aside
	compacting bool                 // pending was taken away for a moment: see compact
	compactAt  int                  // how long pending may become
}

func newBacklog(unique bool) backlog {
	b := backlog{open: make(map[uint64]int), compactAt: compactSlack}
	if unique {
		b.queued = make(map[key.Key]struct{})
	}
	return b
}

// move is the one transition between states. It keeps the sums; the caller takes
// the item from its list, and puts it into the next.
func (b *backlog) move(i *item, to state) {
	b.account(i, -1)
	i.state = to
	b.account(i, 1)
	if b.queued == nil || i.life > 0 {
		return
	}
	if to == done {
		base.Delete(&b.queued, i.rec.Key, &b.peak)
	} else {
		b.queued[i.rec.Key] = struct{}{}
	}
}

// account adds an item to the sums of its state, or takes it out.
func (b *backlog) account(i *item, sign int) {
	n := int64(sign) * int64(i.rec.Size)
	switch i.state {
	case done:
		return
	case pending:
		b.pendingBytes += n
	case ready, inFlight:
		if i.life == 0 {
			b.heldBytes += n
		}
	case retry:
		b.retryBytes += n
		return
	}
	if b.open[i.gen] += sign; b.open[i.gen] == 0 {
		delete(b.open, i.gen)
	}
}

// add puts a chunk into pending.
func (b *backlog) add(r tier.Record, gen uint64, now uint32) {
	i := item{rec: r, gen: gen, came: now}
	b.move(&i, pending)
	b.pending.push(i)
}

// has reports whether a chunk is in any state, where that is known.
func (b *backlog) has(k key.Key) bool {
	_, ok := b.queued[k]
	return ok
}

// toRetry puts a chunk off. Beyond maxRetry the oldest is forgotten.
func (b *backlog) toRetry(i item) {
	if b.retry.len() == maxRetry {
		oldest := b.retry.pop()
		b.move(&oldest, done)
	}
	b.move(&i, retry)
	i.retried = true
	b.retry.push(i)
}

// again offers an item that a worker has taken as part of its generation.
func (b *backlog) again(i item) {
	b.move(&i, offered)
	b.offered.push(i)
}

// offer has up to n items in retry tried again, as part of a generation.
func (b *backlog) offer(n int, gen uint64) {
	for range min(n, b.retry.len()) {
		i := b.retry.pop()
		i.gen = gen // in retry it has none
		b.again(i)
	}
}

// source is the list whose front is to be written next; nil if there is none.
// held says that pending waits for victims, but for the generations before
// forced, and, where that is bounded, for items that came at or before old.
func (b *backlog) source(held bool, forced uint64, old uint32, bounded bool) *fifo[item] {
	switch {
	case b.offered.len() > 0:
		return &b.offered
	case b.compacting || b.pending.len() == 0:
		return nil
	}
	if i := b.pending.front(); held && i.gen >= forced && (!bounded || i.came > old) {
		return nil
	}
	return &b.pending
}

// waiting is how many items are in any state but retry.
func (b *backlog) waiting() (n int) {
	for _, open := range b.open {
		n += open
	}
	return n
}

// openBefore reports whether anything of the generations before gen is not done.
func (b *backlog) openBefore(gen uint64) bool {
	for g := range b.open {
		if g < gen {
			return true
		}
	}
	return false
}

// compactSlack is how long pending may be before it is compacted at all.
const compactSlack = 4096

// takePending takes pending away if it is long; until giveBack has given it back
// nothing is taken from it.
func (b *backlog) takePending() (list fifo[item]) {
	if b.compacting || b.pending.len() < b.compactAt {
		return list
	}
	b.compacting = true
	list, b.pending = b.pending, list
	return list
}

// takeAll takes away all of pending and of retry, as takePending does, for one
// generation.
func (b *backlog) takeAll(gen uint64) (list []item) {
	b.compacting = true
	for b.pending.len() > 0 {
		list = append(list, b.pending.pop())
	}
	for b.retry.len() > 0 {
		i := b.retry.pop()
		i.gen = gen // in retry it has none
		b.move(&i, pending)
		list = append(list, i)
	}
	return list
}

// giveBack moves items that were added meanwhile behind those left, and reports
// whether those were all; if so left is pending again.
func (b *backlog) giveBack(left *fifo[item]) bool {
	for range batch {
		if b.pending.len() == 0 {
			b.pending, b.compacting = *left, false
			b.compactAt = 2*left.len() + compactSlack
			return true
		}
		left.push(b.pending.pop())
	}
	return false
}

// segment is how many elements of a fifo lie together.
const segment = 256

// fifo is a queue whose calls cost the same however long it is, and which
// keeps no more memory than it needs. The zero fifo is empty.
type fifo[T any] struct {
	first, last *fifoSegment[T]
	n           int
}

type fifoSegment[T any] struct {
	elems      [segment]T
	begin, end int
	next       *fifoSegment[T]
}

func (q *fifo[T]) len() int { return q.n }

// front is the next element; the fifo must not be empty.
func (q *fifo[T]) front() *T { return &q.first.elems[q.first.begin] }

func (q *fifo[T]) push(v T) {
	if q.last == nil || q.last.end == segment {
		s := &fifoSegment[T]{}
		if q.last == nil {
			q.first = s
		} else {
			q.last.next = s
		}
		q.last = s
	}
	q.last.elems[q.last.end] = v
	q.last.end++
	q.n++
}

// pop takes the front; the fifo must not be empty.
func (q *fifo[T]) pop() T {
	var zero T
	s := q.first
	v := s.elems[s.begin]
	s.elems[s.begin] = zero
	s.begin++
	q.n--
	if s.begin == s.end {
		if q.first = s.next; q.first == nil {
			q.last = nil
		}
	}
	return v
}

// atWork is the keys that workers are at, at most as many as there are workers.
// The queue's mutex guards it.
type atWork map[key.Key]*keyTasks

// keyTasks is the tasks of one key.
type keyTasks struct {
	tasks int  // taken and not ended
	busy  bool // one of them is being written
	// wanted is set where one of them was found worth writing.
	wanted bool
}

// take notes that a worker has a task.
func (f atWork) take(k key.Key, wanted bool) {
	if f[k] == nil {
		f[k] = new(keyTasks)
	}
	f[k].tasks++
	f[k].wanted = f[k].wanted || wanted
}

// release notes that a task has ended.
func (f atWork) release(k key.Key) {
	if f[k].tasks--; f[k].tasks == 0 {
		delete(f, k)
	}
}

// begin begins the write of a key, which ends when busy is reset, unless another worker
// writes it. Two at a time are two lives of it, with a delete between them: the second would
// take what the first has just written for its own, and the first then takes it back.
func (f atWork) begin(k key.Key) bool {
	if f[k].busy {
		return false
	}
	f[k].busy = true
	return true
}

// wants reports whether a chunk that a worker is at was found worth writing.
func (f atWork) wants(k key.Key) bool { return f[k] != nil && f[k].wanted }

// touches reports whether a worker is at anything that d deletes.
func (f atWork) touches(d Deletion) bool {
	for k := range f {
		if d.Has(k) {
			return true
		}
	}
	return false
}
