package blockio

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/tier"
)

// ErrHung says that the device ended nothing for the whole I/O timeout.
var ErrHung = fmt.Errorf("the device %w: %w", tier.ErrHung, os.ErrDeadlineExceeded)

// PieceBytes is the largest request handed to the kernel. With 2 to 4 pieces
// under way the first 4 MiB chunk of a prefix arrives after 1.3 times the time
// of a single read; whole-chunk requests make it 15 times late.
const PieceBytes = 1 << 20

// smallPieces is how many smaller pieces may stand in for one of pieceBytes: a
// Device takes as long over the request as over its bytes when they are few.
const smallPieces = 4

// readShare is how many read pieces may pass while a write waits: a request
// waits for a read, none for a write-behind, but that must move.
const readShare = 4

// Device is the queue before one disk: a few workers take pieces in the order
// of submission, all pieces of one transfer before those of the next. Under
// way are depth pieces of the largest size, or as many bytes in smaller ones.
type Device struct {
	Depth    int // not to be changed
	timeout  time.Duration
	Progress atomic.Uint64 // pieces ended, however
	Errors   atomic.Uint64 // pieces that failed
	refused  atomic.Uint64 // requests of several transfers, all of which went well alone

	// Whether transfers to or from it are worth a try; nil = always.
	Reading, Writing *Health

	mu struct {
		sync.Mutex
		wake    sync.Cond
		reads   queue
		writes  queue
		streak  int // read pieces since the last write piece
		flying  int // pieces in the kernel
		weight  int // their bytes; of other work a whole piece
		stopped bool
	}
}

// New is a queue that works once Run does. A depth is how many pieces of the
// largest size are under way at once; the timeout bounds the end of Run.
func New(depth int, timeout time.Duration) *Device {
	d := &Device{Depth: depth, timeout: timeout}
	d.mu.wake.L = &d.mu.Mutex
	return d
}

// Run works until ctx ends, then fails the queued transfers with ErrClosed and
// waits for the pieces in the kernel, but no longer than the timeout.
func (d *Device) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	for range smallPieces * d.Depth {
		workers.Go(d.work)
	}
	<-ctx.Done()
	d.Stop()
	idle := make(chan struct{})
	go func() {
		workers.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-time.After(d.timeout):
		return fmt.Errorf("disk: %d requests did not return within %v: %w", d.InKernel(), d.timeout, ErrHung)
	}
}

// Submit queues t. A refused transfer is not finished; its pass is ended.
func (d *Device) Submit(t *Transfer) error {
	if t.Call == nil && t.Pass == (Pass{}) {
		t.Pass = d.healthOf(t).Insist()
	}
	if !d.enqueue(t) {
		t.Pass.Return()
		return tier.ErrClosed
	}
	return nil
}

// enqueue is false once the device is stopped.
func (d *Device) enqueue(t *Transfer) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.Dev = d // also of a refused one: its caller may wait for it
	if d.mu.stopped {
		return false
	}
	if t.Block.Valid() {
		t.Block.Retain()
	}
	d.queueOf(t).push(t)
	d.mu.wake.Signal()
	return true
}

// Cancel takes t out of the queue. Pieces already in the kernel end first; t
// is finished once in any case.
func (d *Device) Cancel(t *Transfer, why error) {
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

// Stop fails the queued transfers, and those submitted later, with ErrClosed.
func (d *Device) Stop() {
	d.mu.Lock()
	d.mu.stopped = true
	var idle []*Transfer
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

func (d *Device) work() {
	for {
		t, from, to := d.take()
		if t == nil {
			return
		}
		if to < len(t.Buf) || t.with == nil {
			d.ended(t, from, to, t.do(from, to))
		} else {
			d.workTogether(t, from, to)
		}
	}
}

// workTogether does t's last piece and the transfers that go with it. A request
// that the device does not take as a whole is made anew one by one, so that each
// transfer has its own answer.
func (d *Device) workTogether(t *Transfer, from, to int) {
	well := t.doTogether(from, to)
	refused := !well
	for x := t; x != nil; {
		var err error
		if !well {
			err = x.do(from, to)
			refused = refused && err == nil
		}
		with := x.with // finish ends x
		d.ended(x, from, to, err)
		if x = with; x != nil {
			from, to = 0, len(x.Buf)
		}
	}
	if refused {
		d.refused.Add(1)
	}
}

// take waits for the next piece: bytes [from, to) of t, and after its last one
// the transfers chained to it. It returns nil when the device is stopped.
func (d *Device) take() (t *Transfer, from, to int) {
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
	last := t
	t.neighbours(func(x *Transfer) {
		d.begin(q, x)
		last.with, last = x, x
	})
	from, to = d.begin(q, t)
	if d.ready() != nil {
		d.mu.wake.Signal() // submit wakes one worker; the other pieces are for the others
	}
	return t, from, to
}

// begin takes t's next piece out of its queue. The owner holds mu.
func (d *Device) begin(q *queue, t *Transfer) (from, to int) {
	from, to = t.piece()
	t.next = to
	t.flying++
	d.mu.flying++
	d.mu.weight += t.weight(from, to)
	if to == len(t.Buf) {
		q.remove(t)
	}
	return from, to
}

// ready is the queue to take the next piece from, nil when there is none or
// enough is under way. The owner holds mu.
func (d *Device) ready() *queue {
	q := &d.mu.reads
	if q.head == nil || d.mu.writes.head != nil && d.mu.streak >= readShare {
		q = &d.mu.writes
	}
	if q.head == nil {
		return nil
	}
	if d.mu.flying > 0 && d.mu.weight+q.head.request() > d.Depth*PieceBytes {
		return nil
	}
	return q
}

func (d *Device) ended(t *Transfer, from, to int, err error) {
	d.Progress.Add(1)
	if t.Call == nil && err != nil {
		d.Errors.Add(1)
	}
	d.mu.Lock()
	d.mu.flying--
	d.mu.weight -= t.weight(from, to)
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

func (d *Device) queueOf(t *Transfer) *queue {
	if t.Write {
		return &d.mu.writes
	}
	return &d.mu.reads
}

// healthOf is the health of the direction that a transfer goes in.
func (d *Device) healthOf(t *Transfer) *Health {
	if t.Write {
		return d.Writing
	}
	return d.Reading
}

// InKernel is how many pieces are under way.
func (d *Device) InKernel() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.flying
}

// Depths returns how many transfers wait, and how many pieces are under way.
func (d *Device) Depths() (reads, writes, flying int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.reads.n, d.mu.writes.n, d.mu.flying
}
