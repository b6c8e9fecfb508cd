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

// LogOptions of a Log. The zero LogOptions are the defaults.
type LogOptions struct {
	Pending  int           // most changes that wait to be numbered: 65,536, 64 bytes each
	Batches  int           // most batches that Read can go back: 1,024
	Changes  int           // most changes in all of them: 262,144
	Interval time.Duration // from a change to its batch: 10 ms
}

// Log is the changes of one life of a daemon. Its methods may be called from
// any number of goroutines; Run is called once.
type Log struct {
	o     LogOptions
	epoch uint64
	wake  chan struct{} // capacity 1: something is pending
	spare []Change      // Run's: room for what comes while it makes batches

	pending struct {
		mu     sync.Mutex
		list   []Change
		full   bool        // a change was dropped
		drains base.Signal // at each cut
	}
	batches struct {
		mu      sync.Mutex
		list    []Batch // the last ones
		changes int     // in list
		next    uint64  // sequence number of the next one
		grows   base.Signal
	}
	noted, dropped, restarts atomic.Uint64
}

// MaxBatch is the most changes of one batch: some 64 KiB on the wire.
const MaxBatch = 1024

// NewLog makes a log. epoch tells the lives of a daemon apart.
func NewLog(epoch uint64, o LogOptions) *Log {
	o.Pending = cmp.Or(o.Pending, 64<<10)
	o.Batches = cmp.Or(o.Batches, 1<<10)
	o.Changes = cmp.Or(o.Changes, 256<<10)
	o.Interval = cmp.Or(o.Interval, 10*time.Millisecond)
	return &Log{o: o, epoch: epoch, wake: make(chan struct{}, 1)}
}

// Epoch tells this life of the daemon from others: sequence numbers of two
// epochs have nothing to do with each other.
func (l *Log) Epoch() uint64 { return l.epoch }

// Note appends a change. It never waits. Changes are noted in the order in which
// they are made: the caller holds the lock that orders them.
func (l *Log) Note(c Change) {
	if l.enqueue(c) {
		base.Poke(l.wake)
	}
}

// enqueue makes a change pending, and reports whether it is the first.
func (l *Log) enqueue(c Change) (first bool) {
	p := &l.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full || len(p.list) >= l.o.Pending {
		p.full = true
		l.dropped.Add(1)
		return false
	}
	p.list = append(p.list, c)
	l.noted.Add(1)
	return len(p.list) == 1
}

// Room waits until the log has taken half of the pending changes, for a caller that notes
// much and can wait: the walk.
func (l *Log) Room(ctx context.Context) error {
	for {
		l.pending.mu.Lock()
		if len(l.pending.list) <= l.o.Pending/2 {
			l.pending.mu.Unlock()
			return ctx.Err()
		}
		drained := l.pending.drains.Next()
		l.pending.mu.Unlock()
		if !base.Await(ctx, drained) {
			return ctx.Err()
		}
	}
}

// Run numbers the changes until ctx ends. walk notes all resident chunks, in
// order with other changes; it is called in a goroutine of its own after changes
// were dropped, and never twice at a time.
func (l *Log) Run(ctx context.Context, walk func(context.Context) error) error {
	var walking sync.WaitGroup
	defer walking.Wait()
	var busy atomic.Bool
	behind := false // changes were dropped since the last walk began
	for base.Await(ctx, l.wake) {
		if base.Sleep(ctx, l.o.Interval) != nil { // what comes with it goes with it: each batch wakes all readers
			return nil
		}
		behind = l.cut() || behind
		if behind && busy.CompareAndSwap(false, true) {
			behind = false
			l.restarts.Add(1)
			walking.Go(func() {
				_ = walk(ctx) // it fails as ctx ends
				busy.Store(false)
				base.Poke(l.wake)
			})
		}
	}
	return nil
}

// cut makes batches of the pending changes, and reports whether changes were dropped.
func (l *Log) cut() (lost bool) {
	taken, lost := l.take(l.spare[:0])
	list := taken
	if lost { // what came before is worth nothing without what was dropped
		list = []Change{{Kind: Cleared}}
	}
	for now := time.Now(); len(list) > 0; {
		batch := make([]Change, min(len(list), MaxBatch)) // it is kept for long, so without room
		list = list[copy(batch, list):]
		l.append(now, batch)
	}
	if l.spare = taken; cap(taken) > 8*MaxBatch { // of a flood
		l.spare = nil
	}
	return lost
}

// take exchanges the pending changes for room.
func (l *Log) take(room []Change) (list []Change, lost bool) {
	p := &l.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	list, p.list = p.list, room
	lost, p.full = p.full, false
	p.drains.Wake()
	return list, lost
}

// append numbers a batch and forgets the oldest ones.
func (l *Log) append(now time.Time, list []Change) {
	l.batches.mu.Lock()
	defer l.batches.mu.Unlock()
	b := &l.batches
	b.list = append(b.list, Batch{Seq: b.next, Time: now, Changes: list})
	b.next++
	b.changes += len(list)
	drop := 0
	for ; len(b.list)-drop > l.o.Batches || b.changes > l.o.Changes && len(b.list)-drop > 1; drop++ {
		b.changes -= len(b.list[drop].Changes)
	}
	if drop > 0 {
		kept := copy(b.list, b.list[drop:])
		clear(b.list[kept:])
		b.list = b.list[:kept]
	}
	b.grows.Wake()
}

// Next is the sequence number of the batch that comes next.
func (l *Log) Next() uint64 {
	l.batches.mu.Lock()
	defer l.batches.mu.Unlock()
	return l.batches.next
}

// Oldest is the number of the oldest batch that Read has.
func (l *Log) Oldest() uint64 {
	l.batches.mu.Lock()
	defer l.batches.mu.Unlock()
	return l.batches.next - uint64(len(l.batches.list))
}

// Read appends batches from a sequence number on to dst, max at most. lost says
// that some of them are gone, or never were: the reader goes on with those
// returned, or with next, and asks for a snapshot. more is closed when there are
// others; nil if there are now.
func (l *Log) Read(dst []Batch, from uint64, most int) (out []Batch, next uint64, lost bool, more <-chan struct{}) {
	l.batches.mu.Lock()
	defer l.batches.mu.Unlock()
	b := &l.batches
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
	Next     uint64 `json:"next"`     // sequence number of the next batch
	Noted    uint64 `json:"noted"`    // changes
	Dropped  uint64 `json:"dropped"`  // changes for which there was no room
	Restarts uint64 `json:"restarts"` // times that all was said again because of that
}

// Stats returns them.
func (l *Log) Stats() LogStats {
	return LogStats{Next: l.Next(), Noted: l.noted.Load(), Dropped: l.dropped.Load(), Restarts: l.restarts.Load()}
}

// ChangeKind is what a change says.
type ChangeKind uint8

// The kinds of changes. The numbers are those of the protocol.
const (
	Stored  ChangeKind = iota // the chunk is in the tier
	Removed                   // it is not any more
	Cleared                   // nothing is known to be anywhere; what is there is said again
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
