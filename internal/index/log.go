package index

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
)

// LogBatches and LogChanges are how many batches a log keeps, and changes in all of them,
// unless its options say otherwise; MaxBatch is the most of one batch: some 64 KiB on the wire.
const LogBatches, LogChanges, MaxBatch = 1 << 10, 256 << 10, 1 << 10

// LogOptions of a Log. The zero LogOptions are the defaults.
type LogOptions struct {
	Batches int // most batches that Read can go back: LogBatches
	Changes int // most changes in all of them, of 56 bytes: LogChanges
}

// Log is the changes of one life of a daemon. Its methods may be called from
// any number of goroutines; Run is called once.
type Log struct {
	o     LogOptions
	epoch uint64
	wake  chan struct{} // capacity 1: there are changes without a batch
	noted atomic.Uint64

	mu struct {
		sync.Mutex
		open    []Change // of the batch that comes next
		list    []Batch  // the last ones
		changes int      // in list
		next    uint64   // sequence number of the next one
		grows   base.Signal
	}
}

// NewLog makes a log. epoch tells the lives of a daemon apart.
func NewLog(epoch uint64, o LogOptions) *Log {
	o.Batches = cmp.Or(o.Batches, LogBatches)
	o.Changes = cmp.Or(o.Changes, LogChanges)
	return &Log{o: o, epoch: epoch, wake: make(chan struct{}, 1)}
}

// Epoch tells this life of the daemon from others: sequence numbers of two
// epochs have nothing to do with each other.
func (l *Log) Epoch() uint64 { return l.epoch }

// Note appends a change. It never waits, and forgets the oldest batch where there is no
// room. Changes are noted in the order in which they are made: the caller holds the lock
// that orders them.
func (l *Log) Note(c Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noted.Add(1)
	if l.mu.open = append(l.mu.open, c); len(l.mu.open) == MaxBatch {
		l.number(l.mu.open)
		l.mu.open = nil
	} else if len(l.mu.open) == 1 {
		base.Poke(l.wake)
	}
}

// Run makes batches of changes that are 10 ms old until ctx ends.
func (l *Log) Run(ctx context.Context) error {
	for base.Await(ctx, l.wake) {
		if base.Sleep(ctx, 10*time.Millisecond) == nil { // what comes with it goes with it: each batch wakes all readers
			l.cut()
		}
	}
	return nil
}

func (l *Log) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.open) > 0 {
		batch := make([]Change, len(l.mu.open)) // it is kept for long, so without room
		copy(batch, l.mu.open)
		l.number(batch)
		l.mu.open = l.mu.open[:0]
	}
}

// number makes a batch and forgets the oldest ones; called with the mutex held.
func (l *Log) number(list []Change) {
	b := &l.mu
	b.list = append(b.list, Batch{Seq: b.next, Time: time.Now(), Changes: list})
	b.next++
	b.changes += len(list)
	for len(b.list) > l.o.Batches || b.changes > l.o.Changes && len(b.list) > 1 {
		b.changes -= len(b.list[0].Changes)
		b.list[0] = Batch{} // append copies the rest once there is no room behind them
		b.list = b.list[1:]
	}
	b.grows.Wake()
}

// Next is the sequence number of the batch that comes next.
func (l *Log) Next() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.next
}

// Oldest is the number of the oldest batch that Read has.
func (l *Log) Oldest() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.next - uint64(len(l.mu.list))
}

// Read appends batches from a sequence number on to dst, max at most. lost says
// that some of them are gone, or never were: the reader goes on with those
// returned, or with next, and asks for a snapshot. more is closed when there are
// others; nil if there are now.
func (l *Log) Read(dst []Batch, from uint64, most int) (out []Batch, next uint64, lost bool, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &l.mu
	oldest := b.next - uint64(len(b.list))
	if from < oldest || from > b.next {
		from, lost = b.next, true
	}
	have := b.list[from-oldest:]
	have = have[:min(len(have), most)]
	if next = from + uint64(len(have)); next == b.next {
		more = b.grows.Next()
	}
	return append(dst, have...), next, lost, more
}

// LogStats are the numbers of a log.
type LogStats struct {
	Next  uint64 `json:"next"`  // sequence number of the next batch
	Noted uint64 `json:"noted"` // changes
}

// Stats returns them.
func (l *Log) Stats() LogStats {
	return LogStats{Next: l.Next(), Noted: l.noted.Load()}
}

// ChangeKind is what a change says.
type ChangeKind uint8

// The kinds of changes. The numbers are those of the protocol.
const (
	Stored  ChangeKind = iota // the chunk is in the tier
	Removed                   // it is not any more
	Cleared                   // nothing is known to be anywhere; what is there is said again. Only a bridge's log has it
)

// String is the kind's name.
func (k ChangeKind) String() string {
	if k > Cleared {
		return "unknown"
	}
	return [...]string{"stored", "removed", "cleared"}[k]
}

// Change is one change of what one tier holds.
type Change struct {
	Kind   ChangeKind
	Place  uint8    // the tier, by its place
	Tokens uint32   // in the chunk, of Stored; 0: as many as a chunk of the space has
	Key    key.Key  // zero in Cleared
	Parent key.Hash // the chunk before it, of Stored; zero for the first of a prompt
}

// Batch is changes that were made about the same time, in order.
type Batch struct {
	Seq     uint64 // counts batches of one life of the daemon, from 0
	Time    time.Time
	Changes []Change // not to be changed
}
