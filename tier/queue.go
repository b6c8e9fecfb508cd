package tier

import (
	"cmp"
	"container/heap"
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
	if p.in == nil || base.Await(ctx, p.in) {
		return p, nil
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
		bytes := cmp.Or(job.usual, job.up.usual, job.queue[0].bytes) // now: it may have waited for long
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

// flow is everything that takes turns at one level: the root has clients as
// kids, a client has jobs, a job has passes. The queue's mutex guards it.
type flow struct {
	id  uint64
	up  *flow
	tag int64 // virtual time, in bytes, at which its next turn starts among the kids of up
	// now is the virtual time among its own kids: the tag that the last one served
	// would have without the bytes that were out for it. The charge for those is a
	// guess, and time that follows a guess too high stays behind when it is taken
	// back.
	now   int64
	at    int   // its place in up.ready, or in up.idle; -1 while nothing of it waits, but something is out
	alive int   // passes of it that wait or are out
	out   int64 // bytes charged for passes of it that are out
	usual int64 // bytes of its last load that brought any; 0 = not known
	kids  map[uint64]*flow
	ready flows   // kids of which something waits, least tag first
	idle  flows   // kids that are not alive and have had more than their share, in the same order
	queue []*Pass // of a job, in order of arrival
}

// maxIdle bounds how many kids are remembered that are not alive.
const maxIdle = 1024

// kid returns the kid of that name, a new one if there is none. A new one starts now: to
// have been away earns nothing. Nor does it pay a debt: one that has had more than its
// share goes on where it was.
func (f *flow) kid(id uint64) *flow {
	k := f.kids[id]
	switch {
	case k == nil:
		if f.kids == nil {
			f.kids = make(map[uint64]*flow)
		}
		k = &flow{id: id, up: f, at: -1, tag: f.now}
		f.kids[id] = k
	case k.alive == 0:
		heap.Remove(&f.idle, k.at)
	}
	return k
}

// forget forgets kids that are not alive: those that are not ahead any more, and those
// least ahead where they are too many.
func (f *flow) forget() {
	for len(f.idle) > 0 && (f.idle[0].tag <= f.now || len(f.idle) > maxIdle) {
		k := heap.Pop(&f.idle).(*flow)
		delete(f.kids, k.id)
	}
}

// join and quit count a pass of the job f.
func (f *flow) join() {
	for ; f != nil; f = f.up {
		f.alive++
	}
}

func (f *flow) quit() {
	for ; f != nil; f = f.up {
		switch f.alive--; {
		case f.alive > 0:
		case f.up != nil:
			f.kids, f.idle = nil, nil // with none alive all begin anew
			heap.Push(&f.up.idle, f)
			f.up.forget()
		default:
			f.kids, f.idle = nil, nil
		}
	}
}

// push queues p with its job f.
func (f *flow) push(p *Pass) {
	f.queue = append(f.queue, p)
	for k := f; k.up != nil && k.at < 0; k = k.up {
		k.tag = max(k.tag, k.up.now+k.out)
		heap.Push(&k.up.ready, k)
	}
}

// next is the job whose turn it is below the root f, or nil.
func (f *flow) next() *flow {
	for len(f.ready) > 0 {
		f = f.ready[0]
	}
	if f.up == nil {
		return nil
	}
	return f
}

// serve takes the first pass of the job f, whose turn it is, and charges so
// many bytes for it.
func (f *flow) serve(bytes int64) *Pass {
	p := f.queue[0]
	p.bytes = bytes
	for k := f; k.up != nil; k = k.up {
		k.up.now = k.tag - k.out
		k.up.forget()
		k.out += bytes
	}
	f.drop(0)
	f.charge(bytes)
	return p
}

// settle ends a pass of the job f for which so much was charged, and which has
// brought so much.
func (f *flow) settle(charged, brought int64) {
	f.charge(brought - charged)
	for k := f; k.up != nil; k = k.up {
		if k.out -= charged; brought > 0 {
			k.usual = brought
		}
	}
}

// charge moves the next turn of the job f and of its client back by n bytes,
// or forward where too much was charged before.
func (f *flow) charge(n int64) {
	for k := f; k.up != nil; k = k.up {
		if k.tag += n; k.at >= 0 {
			heap.Fix(&k.up.ready, k.at)
		}
	}
}

// drop takes pass i of the job f out of its queue.
func (f *flow) drop(i int) {
	copy(f.queue[i:], f.queue[i+1:])
	last := len(f.queue) - 1
	f.queue[last] = nil
	f.queue = f.queue[:last]
	for k := f; k.up != nil && len(k.queue) == 0 && len(k.ready) == 0; k = k.up {
		heap.Remove(&k.up.ready, k.at)
	}
}

// flows is a heap by tag.
type flows []*flow

func (h flows) Len() int           { return len(h) }
func (h flows) Less(i, j int) bool { return h[i].tag < h[j].tag }
func (h flows) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }
func (h *flows) Push(x any)        { k := x.(*flow); k.at = len(*h); *h = append(*h, k) }

func (h *flows) Pop() any {
	old := *h
	last := len(old) - 1
	k := old[last]
	old[last] = nil
	*h, k.at = old[:last], -1
	return k
}
