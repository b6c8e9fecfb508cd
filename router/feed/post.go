package feed

import "github.com/zeebo/xxh3"

// Post takes in a batch that came without a connection, in the order of its
// numbers. Another epoch is another life of the publisher: all that it said before
// is forgotten, and the batch is the first. A batch that is there already is a
// [Duplicate], so that a post can be repeated whose answer was lost. One beyond a
// gap is not applied: the batches before it are to be posted, from [Publisher.Next]
// on, or all anew under another epoch. The publisher counts as connected until nothing was
// posted for the grace; an empty batch is enough.
func (p *Publisher) Post(epoch string, seq uint64, payload []byte) (Verdict, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &p.mu
	now := p.o.Now()
	m.lost = now
	if now.Before(m.deaf) {
		m.begun = false
		return Applied, ErrIgnore
	}
	switch {
	case epoch != m.epoch || !m.begun:
		if epoch != m.epoch {
			p.forget()
		}
		m.epoch, m.begun = epoch, true
	case seq+1 == m.next && xxh3.Hash(payload) != m.last:
		m.stats.Restarts++
		return Restart, nil
	case seq < m.next:
		m.stats.Duplicates++
		return Duplicate, nil
	case seq > m.next:
		m.stats.Gaps++
		return Gap, nil
	}
	return Applied, p.take(seq, payload)
}
