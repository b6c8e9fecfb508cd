package server

import "time"

// The connections of one user are served as they come, paceBurst of them at once and
// one each paceEach after that; those that come sooner wait, for paceMost at the most. To
// connect costs the daemon and its client some 0.5 ms, so that a program that connects again
// and again, or beyond its limits, leaves most of the machine to others.
const (
	paceBurst = 256
	paceEach  = 4 * time.Millisecond
	paceMost  = 5 * time.Second
)

// pace says when the connections of one user are served. The mutex of users guards it;
// the zero pace is that of a user whose first connection comes.
type pace struct {
	full time.Time // when paceBurst connections may come at once again
}

// next counts a connection, and returns how long it waits.
func (p *pace) next(now time.Time) time.Duration {
	if p.full.Before(now) {
		p.full = now
	}
	wait := max(0, p.full.Sub(now)-(paceBurst-1)*paceEach)
	if wait >= paceMost {
		return paceMost
	}
	p.full = p.full.Add(paceEach)
	return wait
}

// left is how long it takes until it says what a new one does.
func (p *pace) left(now time.Time) time.Duration { return p.full.Sub(now) }
