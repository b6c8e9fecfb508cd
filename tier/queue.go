package tier

import (
	"context"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/internal/base"
)

// Limit is what may be under way at a time. One load always may.
type Limit struct {
	Loads int
	Bytes int64 // 0 = any number
}

// idleShare: of the loads that may be under way, those of idle work are one in
// so many, but at least one. They are still under way when a pass that is not
// idle comes.
const idleShare = 4

// By is the requester of a load.
type By struct {
	Client uint64
	Job    uint64
	Idle   bool // only while no other pass waits
}

// Queue lets loads in, each in its turn. It is safe for concurrent use.
type Queue struct {
	limit Limit
	mu    struct {
		sync.Mutex
		loads, idle int
		bytes       int64
		busy, spare flow // roots: of what clients wait for, of idle work
	}
}

// NewQueue returns an empty queue.
func NewQueue(l Limit) *Queue {
	q := &Queue{limit: l}
	q.limit.Loads = max(1, l.Loads)
	return q
}

// Pass is one load, waiting or under way.
type Pass struct {
	q     *Queue
	job   *flow
	bytes int64 // a guess at what it brings; what was charged for it once it is in
	idle  bool
	let   bool          // it is in; the queue's mutex guards it
	in    chan struct{} // closed when it is let in; nil if it was at once
}

// Enter waits for the turn of a load, until ctx ends. bytes is a guess at what
// it brings, for a job and a client of which no load has brought any yet. Who is
// let in must Leave.
func (q *Queue) Enter(ctx context.Context, by By, bytes int64) (*Pass, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := q.join(by, bytes)
	base.Queued(ctx)
	if p.in == nil {
		return p, nil
	}
	select {
	case <-p.in:
		return p, nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.let { // this very moment
		q.leave(p, 0)
	} else {
		p.job.drop(slices.Index(p.job.queue, p))
		p.job.quit()
	}
	q.admit()
	return nil, ctx.Err()
}

func (q *Queue) join(by By, bytes int64) *Pass {
	p := &Pass{q: q, bytes: bytes, idle: by.Idle}
	q.mu.Lock()
	defer q.mu.Unlock()
	root := &q.mu.busy
	if by.Idle {
		root = &q.mu.spare
	}
	p.job = root.kid(by.Client).kid(by.Job)
	p.job.join()
	p.job.push(p)
	q.admit()
	if !p.let {
		p.in = make(chan struct{})
	}
	return p
}

// Leave ends a load that brought so many bytes: they, not those announced, are
// what its client and job have had.
func (p *Pass) Leave(bytes int64) {
	p.q.mu.Lock()
	defer p.q.mu.Unlock()
	p.q.leave(p, bytes)
	p.q.admit()
}

// leave is called with the mutex held.
func (q *Queue) leave(p *Pass, bytes int64) {
	q.mu.loads--
	q.mu.bytes -= p.bytes
	if p.idle {
		q.mu.idle--
	}
	p.job.settle(p.bytes, bytes)
	p.job.quit()
}

// admit lets in who fits; called with the mutex held.
func (q *Queue) admit() {
	for {
		job := q.mu.busy.next()
		if job == nil && q.mu.idle < max(1, q.limit.Loads/idleShare) {
			job = q.mu.spare.next()
		}
		if job == nil {
			return
		}
		bytes := job.guess(job.queue[0].bytes) // now: it may have waited for long
		if !q.fits(bytes) {
			return
		}
		p := job.serve(bytes)
		p.let = true
		q.mu.loads++
		q.mu.bytes += p.bytes
		if p.idle {
			q.mu.idle++
		}
		if p.in != nil {
			close(p.in)
		}
	}
}

func (q *Queue) fits(bytes int64) bool {
	switch {
	case q.mu.loads == 0:
		return true
	case q.mu.loads >= q.limit.Loads:
		return false
	}
	return q.limit.Bytes == 0 || q.mu.bytes+bytes <= q.limit.Bytes
}

// QueueStats is how busy a queue is.
type QueueStats struct {
	Loads   int   // under way
	Bytes   int64 // of these
	Waiting int
	Clients int // that wait, with loads under way or waiting
}

// Stats returns a snapshot.
func (q *Queue) Stats() QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return QueueStats{Loads: q.mu.loads, Bytes: q.mu.bytes, Waiting: q.mu.busy.alive + q.mu.spare.alive - q.mu.loads, Clients: len(q.mu.busy.kids) - len(q.mu.busy.idle)}
}
