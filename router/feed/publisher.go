package feed

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/router/event"
	"github.com/kvstored/kvstored/router/index"
)

// Errors of batches and of publishers.
var (
	ErrRank   = errors.New("batch of another rank")
	ErrSpace  = errors.New("chunks of another space")
	ErrIgnore = errors.New("publisher is not heard for a while")
	ErrFlood  = errors.New("publisher says more than it may")
)

// Options of publishers. The zero values of all but Index are the defaults.
type Options struct {
	Index *index.Index
	Now   func() time.Time // nil = time.Now

	WaitingEvents int           // events whose parents are not known: 1,024
	WaitingBlocks int           // blocks in all of them: 65,536
	WaitingAge    time.Duration // 60 s
	Grace         time.Duration // a lost connection may last: 30 s
	// MaxBlocks is the most blocks that a publisher says of its worker, in all
	// media; beyond it all is forgotten, as after garbage. 0 = 4 Mi.
	MaxBlocks int
	// Rate is how many blocks a second a publisher may go on saying: see
	// [Publisher.Pace]. 0 = 200,000.
	Rate float64
	// Silence is how long nothing comes, though something is [Publisher.Due],
	// until all is forgotten: 10 s.
	Silence time.Duration

	Limits event.Limits // of a batch
}

// Worker is whose events they are. It is registered in the index.
type Worker struct {
	index.Worker
	Tenant  string
	Dialect event.Dialect
	// Chunks says that a kvstored tells them: blocks are chunks, known by hashes.
	Chunks bool
}

// Verdict is what became of a batch.
type Verdict uint8

// The verdicts.
const (
	Applied   Verdict = iota // or refused with an error: the next number is expected
	Duplicate                // it was applied before
	Gap                      // batches before it are missing; it is not applied
	Restart                  // its number moves back, or is another's; it is not applied
)

// Publisher is what one endpoint says of one worker. Its methods may be called
// from any number of goroutines.
type Publisher struct {
	o     Options
	w     Worker
	model *Model

	silent chan struct{} // full: the connection is to end, so that the next one asks

	mu struct {
		sync.Mutex
		begun    bool
		next     uint64    // number that is expected
		covered  uint64    // numbers from here to next came by a replay, and may come again
		live     uint64    // highest number that came live, with heard
		heard    bool      // there is one
		last     uint64    // hash of the last batch, to know it again
		lost     time.Time // since when there is no connection; zero: there is
		deaf     time.Time // until when nothing is heard
		penalty  time.Duration
		shards   map[index.Name]*index.Shard // that have something of the worker
		other    map[int]bool                // groups that are not full
		spaces   map[string]string           // of the chunks, by adapter
		epoch    string                      // of posted batches
		bucket   bucket
		due      due
		stalled  bool // it has stopped, and next is what would show that it goes on
		asking   bool // all there is must be asked for: nothing counts until Reset
		stale    stale
		waiting  waiting
		stats    Stats
		lastSaid error
	}
}

const (
	firstPenalty = time.Second
	lastPenalty  = time.Minute
)

// New makes a publisher. The model has been checked.
func New(o Options, w Worker, m *Model) *Publisher {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.WaitingEvents = cmp.Or(o.WaitingEvents, 1024)
	o.WaitingBlocks = cmp.Or(o.WaitingBlocks, 65536)
	o.WaitingAge = cmp.Or(o.WaitingAge, time.Minute)
	o.Grace = cmp.Or(o.Grace, 30*time.Second)
	o.MaxBlocks = cmp.Or(o.MaxBlocks, 4<<20)
	o.Rate = cmp.Or(o.Rate, 200_000)
	o.Silence = cmp.Or(o.Silence, 10*time.Second)
	p := &Publisher{o: o, w: w, model: m, silent: make(chan struct{}, 1)}
	p.mu.waiting = newWaiting(o.WaitingEvents, o.WaitingBlocks)
	p.mu.shards, p.mu.other = make(map[index.Name]*index.Shard), make(map[int]bool)
	p.mu.spaces = make(map[string]string)
	p.mu.bucket = bucket{at: o.Now()}
	p.mu.lost = o.Now()
	return p
}

// Live takes in a batch as the publisher sends it. An error names the
// fault of the batch, and comes with Applied: a second copy would have the same fault.
func (p *Publisher) Live(seq uint64, payload []byte) (Verdict, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.asking || p.o.Now().Before(p.mu.deaf) {
		p.mu.begun, p.mu.stalled = false, false
		return Applied, ErrIgnore
	}
	switch v := p.judge(seq); v {
	case Duplicate:
		p.mu.stats.Duplicates++
		p.mu.live, p.mu.heard = seq, true
		return v, nil
	case Gap:
		p.mu.stats.Gaps++
		return v, nil
	case Restart:
		p.mu.stats.Restarts++
		return v, nil
	}
	p.mu.live, p.mu.heard, p.mu.begun = seq, true, true
	return Applied, p.take(seq, payload)
}

// judge compares a live number with the one that is expected.
func (p *Publisher) judge(seq uint64) Verdict {
	m := &p.mu
	switch {
	case !m.begun:
		m.next, m.covered = seq, seq
		return Applied
	case m.stalled && seq >= m.next:
		return Restart
	case seq == m.next:
		return Applied
	case seq > m.next:
		return Gap
	case seq >= m.covered && (!m.heard || seq > m.live):
		return Duplicate
	}
	return Restart
}

// Replay takes in a batch that was asked for again. Numbers before the one that
// is expected are passed over; the last of them tells whether the publisher still is the
// one that it was.
func (p *Publisher) Replay(seq uint64, payload []byte) (Verdict, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &p.mu
	switch {
	case m.stalled && m.begun && seq >= m.next:
		m.stats.Restarts++
		return Restart, nil
	case !m.begun: // the first that is kept
		m.begun, m.next, m.covered = true, seq, seq
	case seq+1 == m.next && xxh3.Hash(payload) != m.last:
		m.stats.Restarts++
		return Restart, nil
	case seq < m.next:
		return Duplicate, nil
	case seq > m.next:
		return Gap, nil
	}
	return Applied, p.take(seq, payload)
}

// Snapshot takes in a part of all that is there, after Reset.
func (p *Publisher) Snapshot(payload []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.apply(payload)
}

// Told takes in events that are decoded, whose source sees to their order itself.
func (p *Publisher) Told(all []event.Event) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.asking || p.o.Now().Before(p.mu.deaf) {
		p.mu.begun = false
		return ErrIgnore
	}
	return p.told(all)
}

// isDeaf reports whether nothing of the publisher is heard for a while.
func (p *Publisher) isDeaf() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.o.Now().Before(p.mu.deaf)
}

// Next is the number that is expected; false if none is.
func (p *Publisher) Next() (uint64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.next, p.mu.begun
}

// Reset forgets all that the publisher has said. The next batch counts as the
// first.
func (p *Publisher) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget()
	p.mu.begun, p.mu.heard, p.mu.stalled, p.mu.asking = false, false, false, false
	select {
	case <-p.silent: // what is asked for now is all there is
	default:
	}
}

// Expect sets the number that is expected, after a snapshot or a batch, unless what
// came has been forgotten since.
func (p *Publisher) Expect(next uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.asking {
		return
	}
	p.mu.begun, p.mu.next, p.mu.covered, p.mu.last = true, next, 0, 0
}

// Rewind has live batches from the expected number on count as known once a
// replay has brought them. seq is the live number that led to the replay, which
// comes no more.
func (p *Publisher) Rewind(seq uint64, heard bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.covered = p.mu.next
	p.mu.live, p.mu.heard = seq, heard
}

// Connected says that there is a connection again.
func (p *Publisher) Connected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.lost, p.mu.heard = time.Time{}, false
	p.mu.covered = p.mu.next
}

// Lost says that there is no connection, and reports whether there was one.
func (p *Publisher) Lost() (ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ended = p.mu.lost.IsZero(); ended {
		p.mu.lost = p.o.Now()
	}
	return ended
}

// Tick does what time brings: blocks that wait too long go, and all of a worker
// whose connection is lost for too long. Call it every second or so.
func (p *Publisher) Tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.o.Now()
	for _, w := range p.mu.waiting.take() { // another worker may have brought the parent
		if now.Sub(w.since) >= p.o.WaitingAge {
			p.mu.stats.Dropped++
			continue
		}
		_ = p.store(w) // it is counted
	}
	if !p.mu.lost.IsZero() && now.Sub(p.mu.lost) >= p.o.Grace {
		p.forget()
		p.mu.begun, p.mu.stalled = false, false
	}
	p.overdue(now)
	if p.mu.stale.due(now, p.mu.stats.Dropped) {
		p.askAgain()
	}
}

// take applies the batch that is expected.
func (p *Publisher) take(seq uint64, payload []byte) error {
	p.mu.next, p.mu.last = seq+1, xxh3.Hash(payload)
	return p.apply(payload)
}

// apply decodes a batch and applies it.
func (p *Publisher) apply(payload []byte) error {
	b, err := event.Decode(payload, p.w.Dialect, p.o.Limits)
	if err != nil {
		p.mu.stats.Garbage++
		p.punish()
		return p.refused(fmt.Errorf("events of worker %s: %w", p.w.Worker, err))
	}
	if b.HasRank && b.Rank != p.w.Rank {
		return p.refused(fmt.Errorf("events of worker %s: %w: %d; register that one with an endpoint of its own", p.w.Worker, ErrRank, b.Rank))
	}
	p.mu.stats.Passed += uint64(b.Unknown)
	return p.told(b.Events)
}

// told applies the events of a batch.
func (p *Publisher) told(all []event.Event) (err error) {
	p.mu.stats.Batches++
	if p.mu.stats.Batches%1024 == 0 {
		p.mu.penalty /= 2
	}
	p.mu.due = due{}
	blocks := 0
	for i := range all {
		blocks += 1 + len(all[i].Hashes)
		if failed := p.event(&all[i]); err == nil {
			err = failed // the first; a batch may have one in each event
		}
	}
	p.mu.bucket.spend(p.o.Now(), blocks, p.o.Rate)
	if held := p.held(); held > p.o.MaxBlocks {
		p.mu.stats.Floods++
		p.punish()
		err = p.refused(fmt.Errorf("events of worker %s: %w: %d blocks, of at most %d; raise route.worker_blocks if it has so many", p.w.Worker, ErrFlood, held, p.o.MaxBlocks))
	}
	return err
}

// punish forgets all, and has nothing of the publisher be heard for a while,
// longer each time.
func (p *Publisher) punish() {
	p.forget()
	p.mu.penalty = min(max(2*p.mu.penalty, firstPenalty), lastPenalty)
	p.mu.deaf = p.o.Now().Add(p.mu.penalty)
}

func (p *Publisher) refused(err error) error {
	p.mu.stats.Refused++
	p.mu.lastSaid = err
	return err
}

// forget clears all that the publisher has said.
func (p *Publisher) forget() {
	p.mu.waiting.clear()
	clear(p.mu.other)
	clear(p.mu.spaces)
	if len(p.mu.shards) == 0 {
		return
	}
	for _, s := range p.mu.shards {
		if err := s.Clear(p.w.Worker); err != nil && !errors.Is(err, index.ErrDropped) && !errors.Is(err, index.ErrUnknownWorker) {
			_ = p.refused(err)
		}
	}
	clear(p.mu.shards)
	p.mu.stats.Forgotten++
}
