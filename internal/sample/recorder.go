package sample

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/key"
)

const (
	gather    = 200 * time.Millisecond // what comes in that time is added at once
	calm      = 10 * time.Minute       // after which a share that fell for want of time may rise
	lookShare = 0.01                   // of the time of requests, for all of this
	idleShare = 0.002                  // besides, of the time in which the process did nothing
)

// Options of a Recorder.
type Options struct {
	// Tiers returns the tiers as they are. A Disk of no bytes is none.
	Tiers func() Tiers
	// Hits returns how many tokens clients have asked for since the start, and how many of
	// these were in DRAM or on disk.
	Hits func() (asked, hit uint64)
	// Busy returns for how long requests about prompts have been worked on since the start.
	Busy func() time.Duration
	// Used returns the processor time of the process. Nil: none is known of.
	Used func() time.Duration
	// Chunks is how many the tiers may have, however small they are; the sample is the
	// smaller for few. 0 = as many as come.
	Chunks int
}

// Recorder keeps a sample of what clients ask for. It is safe for concurrent use.
type Recorder struct {
	o       Options
	started time.Time
	gate    atomic.Pointer[gate]
	queue   queue
	notes   meter        // of requests
	spent   atomic.Int64 // nanoseconds, by Run

	book struct {
		sync.Mutex
		*book
		dropped  uint64
		lowered  time.Time // when the share fell for want of time
		ingested time.Time
		busy     time.Duration // as of then
		used     time.Duration // likewise
		noted    time.Duration // likewise, of prompts that are in the sample
		marks    marks
	}
}

// New makes a Recorder; Run has it work.
func New(o Options) *Recorder {
	r := &Recorder{o: o, started: time.Now()}
	r.queue.wake = make(chan struct{}, 1)
	r.book.book = newBook(roomFor(o.Chunks))
	r.book.marks = newMarks(r.started.UnixMilli())
	r.gate.Store(r.book.gate)
	return r
}

// Asked notes that a client asked for a prompt. It keeps nothing of the chain.
func (r *Recorder) Asked(c *key.Chain) {
	begun := r.notes.begin()
	taken := r.gate.Load().takes(c)
	if taken {
		it := item{chunk: c.Tokens[0]}
		for i, n := range c.Tokens {
			if it.tokens += n; i < c.Skip {
				it.skip += n
			}
		}
		r.queue.put(c, it)
	}
	r.notes.end(begun, taken)
}

// Stored notes that a client stores the chunks of a prompt. It keeps nothing of the chain.
func (r *Recorder) Stored(c *key.Chain) {
	begun := r.notes.begin()
	taken := r.gate.Load().takes(c)
	if taken {
		r.queue.put(c, item{stored: true})
	}
	r.notes.end(begun, taken)
}

// Run adds the noted prompts to the sample until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	var empty batch
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.queue.wake:
			if sleep(ctx, gather) != nil {
				return nil
			}
			empty = r.ingest(empty)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (r *Recorder) used() time.Duration {
	if r.o.Used == nil {
		return 0
	}
	return r.o.Used()
}

// idle is the part of some time in which a process did nothing that has used so much
// processor time, as if it had one processor.
func idle(elapsed, used time.Duration) time.Duration { return max(0, elapsed-used) }

// Spent is the processor time that the sample, and what requests note for it, have taken.
func (r *Recorder) Spent() time.Duration { return time.Duration(r.spent.Load() + r.notes.all.Load()) }

// Share is the share of all sessions that are in the sample, and dropped the prompts that
// came too fast for it.
func (r *Recorder) Share() (share float64, dropped uint64) {
	r.book.Lock()
	defer r.book.Unlock()
	return 1 / float64(uint64(1)<<r.book.shift), r.book.dropped
}

// Sample returns a copy of the sample, with all that came before.
func (r *Recorder) Sample() *Sample {
	r.ingest(batch{})
	r.book.Lock()
	defer r.book.Unlock()
	s := &Sample{At: time.Now(), Dropped: r.book.dropped, Tiers: r.o.Tiers()}
	r.book.fill(s)
	if len(s.Prompts) > 0 {
		s.Since = time.UnixMilli(s.Prompts[0].Millis)
	}
	asked, hit := r.o.Hits()
	s.Measured = r.book.marks.since(r.book.counted(s), asked, hit)
	return s
}

// counted is when the first prompt came that counts; 0 where nothing has gone, so that all
// count.
func (b *book) counted(s *Sample) (millis int64) {
	for i := range s.Prompts {
		if p := &s.Prompts[i]; b.cut && !p.Warmup {
			return p.Millis
		}
	}
	return 0
}

// ingest adds the batch of the queue to the sample, and returns memory for the next time.
func (r *Recorder) ingest(empty batch) batch {
	came := r.queue.take(empty)
	begun := time.Now()
	r.book.Lock()
	defer r.book.Unlock()
	b := r.book.book
	r.book.marks.note(r.millis(begun), r.o.Tiers, r.o.Hits)
	hashes := came.hashes
	for i, h := range hashes {
		hashes[i] = mix(h)
	}
	for i := range came.items {
		it := &came.items[i]
		if len(hashes) > 0 {
			b.add(hashes[:it.hashes], it, r.millis(begun))
		}
		hashes = hashes[it.hashes:]
		for b.full() {
			b.shrink(r.sizes())
		}
	}
	r.book.dropped += came.dropped
	r.pace(begun, came.dropped > 0)
	r.gate.Store(b.gate)
	return came
}

// millis is a time of the sample. The machine's clock, which may be set, changes none of
// the times between.
func (r *Recorder) millis(at time.Time) int64 {
	return r.started.Add(at.Sub(r.started)).UnixMilli()
}

// pace lowers the share of sessions where they take too much time, and raises it after
// some time without that. It is called with the book locked.
func (r *Recorder) pace(begun time.Time, dropped bool) {
	now := time.Now()
	took, busy, used := now.Sub(begun), r.o.Busy(), r.used()
	r.spent.Add(int64(took))
	noted := time.Duration(r.notes.taken.Load())
	took += noted - r.book.noted
	may := lookShare*float64(busy-r.book.busy) + idleShare*float64(idle(now.Sub(r.book.ingested), used-r.book.used))
	first := r.book.ingested.IsZero()
	r.book.busy, r.book.used, r.book.noted, r.book.ingested = busy, used, noted, now
	b := r.book.book
	switch {
	case dropped || !first && float64(took) > max(may, float64(time.Millisecond)):
		b.halve()
		r.book.lowered = now
	case b.shift > 0 && len(b.hashes) < b.room/4 && now.Sub(r.book.lowered) > calm:
		b.widen()
		r.book.lowered = now
	}
}

// sizes are those of the caches that may be played.
func (r *Recorder) sizes() sizes {
	t := r.o.Tiers()
	smallest := t.DRAM.Chunks
	if t.Disk.Bytes > 0 {
		smallest = min(smallest, t.Disk.Chunks)
	}
	return sizes{int64(smallestCache * float64(smallest)), largestCache * (t.DRAM.Chunks + t.Disk.Chunks)}
}

// Bytes is the most memory that a Recorder takes, and a copy of its sample.
const Bytes = 32 << 20
