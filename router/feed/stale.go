package feed

import "time"

const (
	firstStale = 2 * time.Second
	lastStale  = 10 * time.Minute
)

// stale tells when a source that can be asked for all there is should be asked
// again, because blocks were dropped that waited for their parents: a daemon that
// reads its disk tells of chunks in no order. It is asked once nothing was dropped for a
// while, and less often each time, since the parents may be gone for good.
type stale struct {
	askable       bool
	seen, settled uint64 // of Stats.Dropped
	since, asked  time.Time
	wait          time.Duration
}

// due reports whether to ask now.
func (s *stale) due(now time.Time, dropped uint64) bool {
	if dropped != s.seen {
		s.seen, s.since = dropped, now
		return false
	}
	if !s.askable || s.seen == s.settled || now.Sub(s.since) < max(s.wait, firstStale) {
		return false
	}
	if now.Sub(s.asked) > lastStale {
		s.wait = 0
	}
	s.settled, s.asked, s.wait = s.seen, now, min(2*max(s.wait, firstStale), lastStale)
	return true
}

// canAsk says that the source can ask for all there is.
func (p *Publisher) canAsk() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.stale.askable = true
}

// askAgain forgets all, and has the source end its connection and ask for all. What
// the connection brings until then is not taken, else it would count as all there is.
func (p *Publisher) askAgain() {
	p.forget()
	p.mu.begun, p.mu.stalled, p.mu.asking = false, false, true
	p.endConnection()
}

// endConnection has the source end its connection.
func (p *Publisher) endConnection() {
	select {
	case p.silent <- struct{}{}:
	default:
	}
}
