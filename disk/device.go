package disk

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/tier"
)

// pieceBytes is the largest request handed to the kernel. With 2 to 4 pieces
// under way the first 4 MiB chunk of a prefix arrives after 1.3 times the time
// of a single read; whole-chunk requests make it 15 times late.
const pieceBytes = 1 << 20

// smallPieces is how many smaller pieces may stand in for one of pieceBytes: a
// device takes as long over the request as over its bytes when they are few.
const smallPieces = 4

// readShare is how many read pieces may pass while a write waits: somebody is
// waiting for a read, nobody for a write-behind, but it must move.
const readShare = 4

// device is the queue before one disk: a few workers take pieces in the order
// of submission, all pieces of one transfer before those of the next. Under
// way are depth pieces of the largest size, or as many bytes in smaller ones.
type device struct {
	depth    int
	timeout  time.Duration
	progress atomic.Uint64 // pieces ended, however
	errors   atomic.Uint64 // pieces that failed

	// Whether transfers to or from it are worth a try; nil = always.
	reading, writing *health

	mu struct {
		sync.Mutex
		wake    sync.Cond
		reads   queue
		writes  queue
		streak  int // read pieces since the last write piece
		flying  int // pieces in the kernel
		weight  int // their bytes; of other work a whole piece
		calls   int // of those, how many are other work than a transfer
		stopped bool
	}
}

// transfer is one payload on its way between a block and a file, or, with call
// set, any other work that may hang with the device. The device owns it from
// submit until it has called end.finish.
type transfer struct {
	file  file
	off   int64
	buf   []byte      // of block
	block arena.Block // retained while the device owns the transfer
	call  func() error
	write bool
	end   finisher

	next       int // offset in buf of the first piece not taken
	flying     int // pieces in the kernel
	err        error
	queued     bool
	prev, succ *transfer

	dev  *device     // it was submitted to
	over atomic.Bool // finished
}

// finisher is told once, without a lock held, that no piece is or will be
// under way: memory and extent may be reused.
type finisher interface{ finish(err error) }

func newDevice(depth int, timeout time.Duration) *device {
	d := &device{depth: depth, timeout: timeout}
	d.mu.wake.L = &d.mu.Mutex
	return d
}

// run works until ctx ends, then fails what is queued with ErrClosed and waits
// for what is in the kernel, but no longer than the timeout.
func (d *device) run(ctx context.Context) error {
	var workers sync.WaitGroup
	for range smallPieces * d.depth {
		workers.Go(d.work)
	}
	<-ctx.Done()
	d.stop()
	idle := make(chan struct{})
	go func() {
		workers.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-time.After(d.timeout):
		return fmt.Errorf("disk: %d requests did not return within %v: %w", d.inKernel(), d.timeout, errHung)
	}
}

// submit queues t. A refused transfer is not finished.
func (d *device) submit(t *transfer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.stopped {
		return tier.ErrClosed
	}
	if t.block.Valid() {
		t.block.Retain()
	}
	t.dev = d
	d.queueOf(t).push(t)
	d.mu.wake.Signal()
	return nil
}

// cancel takes t out of the queue. Pieces already in the kernel end first; t
// is finished once in any case.
func (d *device) cancel(t *transfer, why error) {
	d.mu.Lock()
	idle := t.queued && t.flying == 0
	if t.queued {
		d.queueOf(t).remove(t)
		t.err = why
	}
	d.mu.Unlock()
	if idle {
		t.finish()
	}
}

func (d *device) stop() {
	d.mu.Lock()
	d.mu.stopped = true
	var idle []*transfer
	for _, q := range []*queue{&d.mu.reads, &d.mu.writes} {
		for t := q.head; t != nil; t = q.head {
			q.remove(t)
			t.err = tier.ErrClosed
			if t.flying == 0 {
				idle = append(idle, t)
			}
		}
	}
	d.mu.wake.Broadcast()
	d.mu.Unlock()
	for _, t := range idle {
		t.finish()
	}
}

func (d *device) work() {
	for {
		t, from, to := d.take()
		if t == nil {
			return
		}
		d.ended(t, from, to, t.do(from, to))
	}
}

// take waits for the next piece: bytes [from, to) of t. It returns nil when
// the device is stopped.
func (d *device) take() (t *transfer, from, to int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.ready()
	for q == nil && !d.mu.stopped {
		d.mu.wake.Wait()
		q = d.ready()
	}
	if q == nil {
		return nil, 0, 0
	}
	if q == &d.mu.reads {
		d.mu.streak++
	} else {
		d.mu.streak = 0
	}
	t = q.head
	from, to = t.piece()
	t.next = to
	t.flying++
	d.mu.flying++
	d.mu.weight += t.weight(from, to)
	if t.call != nil {
		d.mu.calls++
	}
	if to == len(t.buf) {
		q.remove(t)
	}
	if d.ready() != nil {
		d.mu.wake.Signal() // submit wakes one worker; the other pieces are for the others
	}
	return t, from, to
}

// ready is the queue to take the next piece from, nil when there is none or
// enough is under way. The owner holds mu.
func (d *device) ready() *queue {
	q := &d.mu.reads
	if q.head == nil || d.mu.writes.head != nil && d.mu.streak >= readShare {
		q = &d.mu.writes
	}
	if q.head == nil {
		return nil
	}
	if d.mu.flying > 0 && d.mu.weight+q.head.weight(q.head.piece()) > d.depth*pieceBytes {
		return nil
	}
	return q
}

// piece is the next one.
func (t *transfer) piece() (from, to int) { return t.next, min(t.next+pieceBytes, len(t.buf)) }

// weight is what a piece counts for.
func (t *transfer) weight(from, to int) int {
	if t.call != nil {
		return pieceBytes
	}
	return to - from
}

func (d *device) ended(t *transfer, from, to int, err error) {
	d.progress.Add(1)
	if t.call == nil {
		d.healthOf(t).ended(err)
		if err != nil {
			d.errors.Add(1)
		}
	}
	d.mu.Lock()
	d.mu.flying--
	d.mu.weight -= t.weight(from, to)
	if t.call != nil {
		d.mu.calls--
	}
	t.flying--
	if err != nil && t.err == nil {
		t.err = err
		if t.queued { // the other pieces are of no use
			d.queueOf(t).remove(t)
		}
	}
	last := t.flying == 0 && !t.queued
	d.mu.Unlock()
	if last {
		t.finish()
	}
}

func (d *device) queueOf(t *transfer) *queue {
	if t.write {
		return &d.mu.writes
	}
	return &d.mu.reads
}

func (d *device) healthOf(t *transfer) *health {
	if t.write {
		return d.writing
	}
	return d.reading
}

func (d *device) inKernel() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.flying
}

// calling reports whether work other than a transfer is under way.
func (d *device) calling() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.calls > 0
}

// depths returns how many transfers wait, and how many pieces are under way.
func (d *device) depths() (reads, writes, flying int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.reads.n, d.mu.writes.n, d.mu.flying
}

func (t *transfer) do(from, to int) error {
	if t.call != nil {
		return t.call()
	}
	p, off := t.buf[from:to], t.off+int64(from)
	var n int
	var err error
	if t.write {
		n, err = t.file.WriteAt(p, off)
	} else {
		n, err = t.file.ReadAt(p, off)
	}
	switch {
	case n == len(p):
		return nil // ReadAt may say EOF with the last byte
	case err == nil || err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}

func (t *transfer) finish() {
	if t.block.Valid() {
		t.block.Release()
	}
	t.over.Store(true)
	t.end.finish(t.err)
}

// queue is a list of transfers with pieces left to take.
type queue struct {
	head, tail *transfer
	n          int
}

func (q *queue) push(t *transfer) {
	t.queued, t.prev, t.succ = true, q.tail, nil
	if q.tail != nil {
		q.tail.succ = t
	} else {
		q.head = t
	}
	q.tail = t
	q.n++
}

func (q *queue) remove(t *transfer) {
	if t.prev != nil {
		t.prev.succ = t.succ
	} else {
		q.head = t.succ
	}
	if t.succ != nil {
		t.succ.prev = t.prev
	} else {
		q.tail = t.prev
	}
	t.queued, t.prev, t.succ = false, nil, nil
	q.n--
}
