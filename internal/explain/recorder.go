package explain

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
)

const (
	gather    = 200 * time.Millisecond // what comes in that time is added at once
	calm      = 10 * time.Minute       // after which a share that fell for want of time may rise
	timeShare = 0.01                   // of the time of one processor, for the sample
)

// RecorderOptions of a Recorder.
type RecorderOptions struct {
	// Tiers returns the tiers as they are. A Disk of no bytes is none.
	Tiers func() Tiers
	// Hits returns how many tokens clients have asked for since the start, and how many of
	// these were in DRAM or on disk.
	Hits func() (asked, hit uint64)
	// Chunks is how many the sample has at most; 0: 131,072.
	Chunks int
}

// Recorder keeps a sample of what clients ask for. It is safe for concurrent use.
type Recorder struct {
	o       RecorderOptions
	started time.Time
	gate    atomic.Pointer[gate]
	queue   queue

	book struct {
		sync.Mutex
		*book
		dropped  uint64
		lowered  time.Time // when the share fell for want of time
		ingested time.Time
		spent    time.Duration
		marks    marks
	}
}

// NewRecorder makes a Recorder; Run has it work.
func NewRecorder(o RecorderOptions) *Recorder {
	r := &Recorder{o: o, started: time.Now()}
	r.queue.wake = make(chan struct{}, 1)
	r.book.book = newBook(cmp.Or(o.Chunks, maxChunks))
	r.book.marks = newMarks(r.started.UnixMilli())
	r.gate.Store(r.book.gate)
	return r
}

// Asked notes that a client asked for a prompt. It keeps nothing of the chain.
func (r *Recorder) Asked(c *key.Chain) {
	if r.gate.Load().takes(c) {
		r.queue.put(c, item{chunk: c.Tokens[0], tokens: uint32(c.TokensIn(0, c.Len())), skip: uint32(c.TokensIn(0, c.Skip))})
	}
}

// Stored notes that a client stores the chunks of a prompt. It keeps nothing of the chain.
func (r *Recorder) Stored(c *key.Chain) {
	if r.gate.Load().takes(c) {
		r.queue.put(c, item{stored: true})
	}
}

// Run adds the noted prompts to the sample until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	var empty batch
	for base.Await(ctx, r.queue.wake) && base.Sleep(ctx, gather) == nil {
		empty = r.ingest(empty)
	}
	return nil
}

// SampleStats is what the sample takes.
type SampleStats struct {
	Share   float64 `json:"share"`   // of all sessions, those that are in it
	Dropped uint64  `json:"dropped"` // prompts that came too fast for it
	Seconds float64 `json:"seconds"` // for which it was worked on
}

// Stats returns the present numbers.
func (r *Recorder) Stats() SampleStats {
	r.book.Lock()
	defer r.book.Unlock()
	return SampleStats{1 / float64(uint64(1)<<r.book.shift), r.book.dropped, r.book.spent.Seconds()}
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
	r.book.Lock()
	defer r.book.Unlock()
	begun, b := time.Now(), r.book.book
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
	took, may := now.Sub(begun), max(time.Millisecond, time.Duration(timeShare*float64(now.Sub(r.book.ingested))))
	r.book.spent += took
	r.book.ingested = now
	b := r.book.book
	switch {
	case dropped || took > may:
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

// SampleBytes is the most memory that a Recorder takes, and a copy of its sample.
const SampleBytes = 32 << 20

const (
	markEvery = 1000 // milliseconds, at first
	// mostMarks bounds how many there are: then each second one goes, and they come half as often.
	mostMarks = 512
)

// mark is how many tokens had been asked for at some time, and how many of these were hit.
type mark struct {
	millis     int64 // of the sample's clock
	asked, hit uint64
}

// marks are the hits of the tiers as they are, over time. A change of the tiers begins them
// anew.
type marks struct {
	list  []mark
	every int64 // milliseconds
	tiers Tiers
}

// newMarks are those of a start, when nothing has been asked for.
func newMarks(millis int64) marks { return marks{list: []mark{{millis: millis}}, every: markEvery} }

// note adds a mark, if it is time.
func (m *marks) note(millis int64, tiers func() Tiers, hits func() (asked, hit uint64)) {
	last := &m.list[len(m.list)-1]
	if len(m.list) > 1 && millis-last.millis < m.every {
		return
	}
	next := mark{millis: millis}
	next.asked, next.hit = hits()
	is := tiers()
	switch {
	case m.tiers == (Tiers{}):
		m.tiers = is // the first time
	case !m.tiers.alike(&is):
		m.tiers = is
		m.list, m.every = append(m.list[:0], next), markEvery
		return
	}
	if m.list = append(m.list, next); len(m.list) > mostMarks {
		n := 0
		m.list = slices.DeleteFunc(m.list, func(mark) bool { n++; return n%2 == 0 })
		m.every *= 2
	}
}

// since counts from the first mark at or after some time, or from the last one.
func (m *marks) since(millis int64, asked, hit uint64) Measured {
	i := 0
	for i+1 < len(m.list) && m.list[i].millis < millis {
		i++
	}
	from := &m.list[i]
	return Measured{Since: time.UnixMilli(from.millis), AskedTokens: asked - from.asked, HitTokens: hit - from.hit}
}

// queueHashes bounds the queue. There are two of them, one of which is being read.
const queueHashes = 1 << 15

// item is a prompt in the queue.
type item struct {
	hashes       int // how many of the queue's are its own
	tokens, skip uint32
	chunk        uint32 // tokens of a whole chunk
	space        uint64
	stored       bool // it was not asked for, but is being stored
}

// batch is the prompts that came between two looks at the queue.
type batch struct {
	hashes  []uint64 // not mixed yet
	items   []item
	dropped uint64 // prompts that had no room
}

// queue hands prompts over from requests to the book.
type queue struct {
	wake chan struct{} // capacity 1: there is something in it
	mu   struct {
		sync.Mutex
		batch
	}
}

// put copies the hashes of a chain, or counts it as dropped.
func (q *queue) put(c *key.Chain, it item) {
	it.hashes, it.space = c.Len(), spaceOf(c)
	q.mu.Lock()
	first := len(q.mu.items) == 0 && q.mu.dropped == 0
	if len(q.mu.hashes)+it.hashes > queueHashes {
		q.mu.dropped++
	} else {
		at := len(q.mu.hashes)
		q.mu.hashes = slices.Grow(q.mu.hashes, it.hashes)[:at+it.hashes]
		for i, to := 0, q.mu.hashes[at:]; i < len(to); i++ {
			to[i] = fold(&c.Hashes[i]) ^ it.space
		}
		q.mu.items = append(q.mu.items, it)
	}
	q.mu.Unlock()
	if first {
		base.Poke(q.wake)
	}
}

// take exchanges the batch for an empty one, whose memory is used again.
func (q *queue) take(empty batch) batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	full := q.mu.batch
	q.mu.batch = batch{hashes: empty.hashes[:0], items: empty.items[:0]}
	return full
}
