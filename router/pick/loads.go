package pick

import (
	"container/list"
	"errors"
	"fmt"

	"github.com/kvstored/kvstored/router/index"
)

// Errors of reservations.
var (
	ErrReservation = errors.New("unknown reservation")
	ErrTooMany     = errors.New("too many reservations")
)

// Loads are what workers were given and have not finished. A worker does its work
// in turn, and time works it off, so that a queue is right without any word of the
// worker, and better with it: [Loads.First] and [Loads.Free] correct it. Times are
// seconds on a clock of the caller's that never goes back. A Loads is not safe for
// concurrent use.
type Loads struct {
	max     int
	age     float64
	next    uint64
	byID    map[uint64]*list.Element // of a *Reservation
	order   *list.List               // by age
	workers map[index.Worker]*queue
}

// queue is the work of one worker, which it does in turn.
type queue struct {
	pending float64 // work of the reservations without a first token
	since   float64 // since when it is worked off
	running int     // reservations that are not freed
}

// left is the work that is not done at a time.
func (q *queue) left(now float64) float64 { return max(q.pending-(now-q.since), 0) }

// settle ends the counting of time in which there was nothing to do.
func (q *queue) settle(now float64) {
	q.since = max(q.since, now-q.pending)
}

// Reservation is work that a worker was given.
type Reservation struct {
	Worker  index.Worker
	Tokens  int     // that it was expected to compute
	Work    float64 // seconds
	Started bool    // its first token has come

	id   uint64
	made float64
}

// NewLoads makes Loads of at most so many reservations; one that is not freed
// within age seconds is freed by itself.
func NewLoads(most int, age float64) *Loads {
	return &Loads{max: most, age: age, byID: make(map[uint64]*list.Element), order: list.New(), workers: make(map[index.Worker]*queue)}
}

// Queue is how long a request would wait on a worker before it begins.
func (l *Loads) Queue(now float64, w index.Worker, s *Speeds) float64 {
	q := l.workers[w]
	if q == nil {
		return 0
	}
	return q.left(now) + float64(q.running)*s.Running
}

// Running is how many reservations of a worker are not freed.
func (l *Loads) Running(w index.Worker) int {
	if q := l.workers[w]; q != nil {
		return q.running
	}
	return 0
}

// Len is how many reservations there are.
func (l *Loads) Len() int { return len(l.byID) }

// Reserve gives a worker so many seconds of work, in which it computes so many
// tokens, and returns the number of the reservation.
func (l *Loads) Reserve(now float64, w index.Worker, work float64, tokens int) (id uint64, err error) {
	l.Expire(now)
	if len(l.byID) >= l.max {
		return 0, fmt.Errorf("reserve on worker %s: %w; there are %d: free them when their requests end", w, ErrTooMany, len(l.byID))
	}
	q := l.workers[w]
	if q == nil {
		q = &queue{since: now}
		l.workers[w] = q
	}
	q.settle(now)
	q.pending += work
	q.running++
	l.next++
	l.byID[l.next] = l.order.PushBack(&Reservation{Worker: w, Tokens: tokens, Work: work, id: l.next, made: now})
	return l.next, nil
}

// First says that a request has its first token: its work is done, however much of
// it was left by the estimate. It returns the reservation as it was before.
func (l *Loads) First(now float64, id uint64) (Reservation, error) {
	e := l.byID[id]
	if e == nil {
		return Reservation{}, fmt.Errorf("reservation %d: %w; it was freed, or grew too old", id, ErrReservation)
	}
	r := e.Value.(*Reservation)
	before := *r
	l.start(now, r)
	return before, nil
}

func (l *Loads) start(now float64, r *Reservation) {
	if r.Started {
		return
	}
	r.Started = true
	q := l.workers[r.Worker]
	q.settle(now)
	done := now - q.since
	q.pending = max(q.pending-r.Work, 0)
	q.since = now - max(done-r.Work, 0)
}

// Free ends a reservation, and returns it as it was before.
func (l *Loads) Free(now float64, id uint64) (Reservation, error) {
	r, err := l.First(now, id)
	if err == nil {
		l.end(l.byID[id])
	}
	return r, err
}

func (l *Loads) end(e *list.Element) {
	r := l.order.Remove(e).(*Reservation)
	delete(l.byID, r.id)
	q := l.workers[r.Worker]
	if q.running--; q.running == 0 {
		delete(l.workers, r.Worker) // nothing is under way, whatever the estimates say
	}
}

// Drop ends all reservations of a worker that is gone.
func (l *Loads) Drop(w index.Worker) {
	for e := l.order.Front(); e != nil; {
		next := e.Next()
		if e.Value.(*Reservation).Worker == w {
			l.end(e)
		}
		e = next
	}
}

// Expire ends the reservations that were not freed in time.
func (l *Loads) Expire(now float64) {
	for e := l.order.Front(); e != nil; e = l.order.Front() {
		r := e.Value.(*Reservation)
		if now-r.made < l.age {
			return
		}
		l.start(now, r)
		l.end(e)
	}
}
