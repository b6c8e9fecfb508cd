package feed

import (
	"context"
	"io"
	"time"
)

// burst is how many blocks a publisher may say at once, as after a restart.
const burst = 1 << 20

// bucket counts what a publisher has said beyond its rate.
type bucket struct {
	debt float64 // blocks, less those that time has paid
	at   time.Time
}

func (b *bucket) spend(now time.Time, blocks int, rate float64) {
	b.debt = max(b.debt-now.Sub(b.at).Seconds()*rate, 0) + float64(blocks)
	b.at = now
}

// Pace is how long the publisher should be left unread, since it has said more
// blocks than its rate allows: its own queue then fills, and others are not held
// up by it.
func (p *Publisher) Pace() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.bucket.spend(p.o.Now(), 0, p.o.Rate)
	return max(time.Duration((p.mu.bucket.debt-burst)/p.o.Rate*float64(time.Second)), 0)
}

// wait waits as Pace says.
func (p *Publisher) wait(ctx context.Context) error {
	pause := p.Pace()
	if pause == 0 {
		return nil
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// dueTimes is how often something was due until silence means something: one
// request may have computed nothing that its worker did not have.
const dueTimes = 3

// due is what a worker should have told of since its last batch.
type due struct {
	times int
	since time.Time
}

// Due says that the worker has computed blocks, so that a batch should come. A
// publisher that says nothing for long though it was due several times has stopped:
// all is forgotten. When it goes on, all there is is asked for where there are
// replays.
func (p *Publisher) Due() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.due.times++; p.mu.due.times == 1 {
		p.mu.due.since = p.o.Now()
	}
}

// overdue forgets a publisher that has stopped.
func (p *Publisher) overdue(now time.Time) {
	d := &p.mu.due
	if p.mu.stalled || d.times < dueTimes || now.Sub(d.since) < p.o.Silence {
		return
	}
	*d = due{}
	p.mu.stats.Silences++
	p.forget()
	p.mu.stalled = p.mu.begun // what it said before is no news
	p.endConnection()
}

// endIfSilent closes a connection on which nothing comes though it should, so that
// the next one asks for all there is. It returns with ctx.
func (p *Publisher) endIfSilent(ctx context.Context, c io.Closer) {
	select {
	case <-ctx.Done():
	case <-p.silent:
		_ = c.Close()
	}
}
