package whatif

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/simulate"
	"github.com/kvstored/kvstored/key"
)

const (
	gather    = 200 * time.Millisecond // what comes in that time is added at once
	pause     = time.Minute            // between two reports, at least
	calm      = 10 * time.Minute       // after which a share that fell for want of time may rise
	lookShare = 0.01                   // of the time of requests, for all of this
	idleShare = 0.002                  // besides, of the time in which the process did nothing
	fewest    = 100                    // prompts of which a report is made
)

// Options of a Recorder.
type Options struct {
	// Tiers returns the tiers as they are. A Disk of no bytes is none.
	Tiers func() Tiers
	// Busy returns for how long requests about prompts have been worked on since the start.
	Busy func() time.Duration
	// Used returns the processor time of the process. Nil: none is known of.
	Used         func() time.Duration
	PrefillDepth float64 // tokens; 0 = simulate.DefaultPrefillDepth
	// Chunks is how many the tiers may have, however small they are; the sample is the
	// smaller for few. 0 = as many as come.
	Chunks int
}

// Recorder keeps a sample of what clients ask for, and makes reports of it. It is safe for
// concurrent use.
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
	}
	playing chan struct{} // capacity 1: held by the play under way
	last    struct {
		sync.Mutex
		Report
		asked uint64 // prompts of the sample, then
	}
}

// New makes a Recorder; Run has it work.
func New(o Options) *Recorder {
	if o.PrefillDepth == 0 {
		o.PrefillDepth = simulate.DefaultPrefillDepth
	}
	r := &Recorder{o: o, started: time.Now(), playing: make(chan struct{}, 1)}
	r.queue.wake = make(chan struct{}, 1)
	r.book.book = newBook(roomFor(o.Chunks))
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

// Run adds the noted prompts to the sample, and makes reports as time allows, until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	started, used := time.Now(), r.used()
	again := time.NewTimer(pause)
	defer again.Stop()
	var p *play
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
		case <-again.C:
			begun := time.Now()
			p = r.advance(ctx, p)
			took := time.Since(begun)
			r.spent.Add(int64(took))
			wait := pause
			if p != nil {
				wait = r.until(idle(begun.Sub(started), r.used()-used))
			}
			again.Reset(wait)
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

// until is how long to wait so that no more time is spent than may be, with so much time in
// which the process did nothing.
func (r *Recorder) until(idle time.Duration) time.Duration {
	may := lookShare*float64(r.o.Busy()) + idleShare*float64(idle)
	over := float64(r.Spent()) - may
	return max(gather, time.Duration(over/idleShare))
}

// advance plays one row of a report, of a new one if there is none in the making, and
// returns it while it has more.
func (r *Recorder) advance(ctx context.Context, p *play) *play {
	select {
	case r.playing <- struct{}{}:
		defer func() { <-r.playing }()
	default:
		return p // an administrator has one made
	}
	if p == nil {
		if p = r.begin(false); p == nil {
			return nil
		}
	}
	more, err := p.step(ctx)
	if err != nil {
		return nil // ctx has ended
	}
	if !more {
		r.publish(p)
		return nil
	}
	return p
}

// begin begins a report, unless little has come since the last one.
func (r *Recorder) begin(always bool) *play {
	r.book.Lock()
	defer r.book.Unlock()
	b := r.book.book
	r.last.Lock()
	fresh := b.asked - r.last.asked
	r.last.Unlock()
	if !always && (len(b.list) < fewest || fresh < uint64(len(b.list)/8)) {
		return nil
	}
	p := newPlay(b.copy(), r.o.Tiers(), r.o.PrefillDepth)
	p.report.Dropped = r.book.dropped
	if len(b.list) > 0 {
		p.report.Since = time.UnixMilli(b.list[0].millis)
	}
	p.asked = b.asked
	return p
}

func (r *Recorder) publish(p *play) {
	p.report.At = time.Now()
	r.last.Lock()
	r.last.Report, r.last.asked = p.report, p.asked
	r.last.Unlock()
}

// Report returns the last report, which does not change; At is zero where there is none.
func (r *Recorder) Report() Report {
	r.last.Lock()
	defer r.last.Unlock()
	return r.last.Report
}

// Spent is the processor time that the sample, what requests note for it, and the reports
// that Run makes have taken.
func (r *Recorder) Spent() time.Duration { return time.Duration(r.spent.Load() + r.notes.all.Load()) }

// Make makes a report now. It takes seconds of one processor where the sample is full. One is
// made at a time.
func (r *Recorder) Make(ctx context.Context) (Report, error) {
	select {
	case r.playing <- struct{}{}:
		defer func() { <-r.playing }()
	case <-ctx.Done():
		return Report{}, ctx.Err()
	}
	r.ingest(batch{})
	p := r.begin(true)
	for {
		more, err := p.step(ctx)
		if err != nil {
			return Report{}, err
		}
		if !more {
			r.publish(p)
			return p.report, nil
		}
	}
}

// ingest adds the batch of the queue to the sample, and returns memory for the next time.
func (r *Recorder) ingest(empty batch) batch {
	came := r.queue.take(empty)
	begun := time.Now()
	r.book.Lock()
	defer r.book.Unlock()
	b := r.book.book
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

// sizes are those of the caches of a report.
func (r *Recorder) sizes() sizes {
	t := r.o.Tiers()
	smallest := t.DRAM.Chunks
	if t.Disk.Bytes > 0 {
		smallest = min(smallest, t.Disk.Chunks)
	}
	return sizes{int64(factors[0] * float64(smallest)), int64(factors[len(factors)-1]) * (t.DRAM.Chunks + t.Disk.Chunks)}
}

// Bytes is the most memory that a Recorder takes, the caches of a play included.
const Bytes = 48 << 20
