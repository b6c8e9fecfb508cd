package route

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"

	"github.com/kvstored/kvstored/router/feed"
	"github.com/kvstored/kvstored/router/index"
	"github.com/kvstored/kvstored/router/pick"
	"github.com/kvstored/kvstored/router/reach"
	"github.com/kvstored/kvstored/router/zmtp"
)

// Options of a service. A zero value means the default in the comment.
type Options struct {
	Models  []feed.Model
	Workers []Worker // that are there from the start
	Allow   reach.Allow

	Token       string // of calls that change something; empty: none over TCP does
	Closed      bool   // all calls take the token, as other machines reach the listener
	Index       int64  // bytes; 0 = 1 GiB
	MaxWorkers  int    // 0 = 4,096
	Blocks      int    // of a worker, in all media; 0 = 4 Mi
	Temperature float64
	Reservation time.Duration // longest; 0 = 10 min
	Grace       time.Duration // a lost connection may last; 0 = 30 s
	Silence     time.Duration // 0 = 10 s

	Log    zerolog.Logger
	Now    func() time.Time // nil = time.Now
	Random func() float64   // nil = math/rand
}

const (
	defaultMaxWorkers  = 4096
	defaultReservation = 10 * time.Minute
	maxReservations    = 1 << 18
	bodyBudget         = 256 << 20 // bytes of all bodies at a time
	messageBudget      = 512 << 20 // bytes of large messages of workers at a time
)

// Service is a router's knowledge and its calls. It is safe for concurrent use.
type Service struct {
	o      Options
	feed   feed.Options
	index  *index.Index
	models map[string]*feed.Model
	born   time.Time
	bodies *semaphore.Weighted
	counts counts

	messages *zmtp.Room

	mu struct {
		sync.Mutex
		ctx     context.Context // of Run; nil before
		members map[index.Worker]*member
		order   []*member               // in which they were registered
		taken   map[string]index.Worker // endpoints
		loads   *pick.Loads
	}
}

// New makes a service. Run starts it.
func New(o Options) (*Service, error) {
	o.MaxWorkers = cmp.Or(o.MaxWorkers, defaultMaxWorkers)
	o.Reservation = cmp.Or(o.Reservation, defaultReservation)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if !(o.Temperature >= 0 && o.Temperature <= 3600) {
		return nil, refuse(ErrRequest, "a temperature of %v s; use 0 to 3600", o.Temperature)
	}
	x, err := index.New(index.Options{Bytes: o.Index, MaxWorkers: o.MaxWorkers, Now: o.Now})
	if err != nil {
		return nil, err
	}
	s := &Service{o: o, index: x, models: make(map[string]*feed.Model), born: o.Now(), bodies: semaphore.NewWeighted(bodyBudget), messages: zmtp.NewRoom(messageBudget)}
	s.counts.make(s)
	s.feed = feed.Options{Index: x, Now: o.Now, Grace: o.Grace, MaxBlocks: o.Blocks, Silence: o.Silence}
	s.mu.members, s.mu.taken = make(map[index.Worker]*member), make(map[string]index.Worker)
	s.mu.loads = pick.NewLoads(maxReservations, o.Reservation.Seconds())
	for i := range o.Models {
		m := o.Models[i]
		if err := m.Check(); err != nil {
			return nil, err
		}
		if s.models[m.Name] != nil {
			return nil, refuse(ErrRequest, "model %.64q is there twice; name each once", m.Name)
		}
		s.models[m.Name] = &m
	}
	for _, w := range o.Workers {
		if err := s.Register(w); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Service) now() time.Time { return s.o.Now() }

// clock is the time of reservations, in seconds.
func (s *Service) clock() float64 { return s.now().Sub(s.born).Seconds() }

// tickTime is how often time is looked at.
const tickTime = time.Second

// Blocks with a time to live are looked at, as all are, after a tenth of the
// shortest one, within these bounds.
const leastExpire, mostExpire = time.Second, 10 * time.Second

// Run hears the workers until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	s.mu.Lock()
	s.mu.ctx = ctx
	for _, w := range s.mu.order {
		s.start(ctx, w)
	}
	s.mu.Unlock()
	t := time.NewTicker(tickTime)
	defer t.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			for _, w := range s.all() {
				w.running.Wait()
			}
			return nil
		case <-t.C:
		}
		s.Tick()
		if time.Since(last) >= s.expireTime() {
			s.index.Expire()
			last = time.Now()
		}
	}
}

// expireTime is how often to look at blocks with a time to live.
func (s *Service) expireTime() time.Duration {
	every := mostExpire
	for _, w := range s.all() {
		if w.TTLSeconds > 0 {
			every = min(every, time.Duration(w.TTLSeconds)*time.Second/10)
		}
	}
	return max(every, leastExpire)
}

// Tick does what time brings; Run calls it every second.
func (s *Service) Tick() {
	s.mu.Lock()
	s.mu.loads.Expire(s.clock())
	s.mu.Unlock()
	for _, w := range s.all() {
		for _, p := range w.publishers() {
			p.Tick()
		}
	}
}

// all are the workers there are.
func (s *Service) all() []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.order)
}

// Register makes a worker known, and hears it from now on.
func (s *Service) Register(w Worker) error {
	fail := func(err error) error { return fmt.Errorf("register worker %.80q: %w", w.ID, err) }
	m := s.models[w.Model]
	if m == nil {
		return fail(s.unknown(w.Model))
	}
	if err := w.check(m, &s.o.Allow); err != nil {
		return fail(err)
	}
	speeds, err := w.speeds()
	if err != nil {
		return fail(err)
	}
	one := s.newMember(w, m)
	one.speeds = speeds
	o := index.WorkerOptions{Scheme: w.Scheme, TTL: time.Duration(w.TTLSeconds) * time.Second}
	if !one.told() {
		o.TTL = cmp.Or(o.TTL, defaultTTL)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range w.endpoints() {
		if other, taken := s.mu.taken[e]; taken && s.mu.members[w.name()] == nil {
			return fail(refuse(ErrTaken, "%s is that of worker %s; one endpoint speaks for one worker", e, other))
		}
	}
	if err := s.index.Register(w.name(), o); err != nil {
		return fail(err)
	}
	s.mu.members[w.name()] = one
	s.mu.order = append(s.mu.order, one)
	for _, e := range w.endpoints() {
		s.mu.taken[e] = w.name()
	}
	if s.mu.ctx != nil {
		s.start(s.mu.ctx, one)
	}
	return nil
}

// unknown is the error of a model that is not there.
func (s *Service) unknown(model string) error {
	return refuse(ErrModel, "%.80q; route.models has %d, and not this one", model, len(s.models))
}

// Unregister forgets a worker and all that it has.
func (s *Service) Unregister(name index.Worker) error {
	s.mu.Lock()
	one := s.mu.members[name]
	if one == nil || one.leaving {
		s.mu.Unlock()
		return fmt.Errorf("unregister: %w %s", index.ErrUnknownWorker, name)
	}
	one.leaving = true // it is chosen no more, and its name is not free yet
	s.mu.Unlock()
	if one.cancel != nil {
		one.cancel()
	}
	one.running.Wait()
	err := s.index.Unregister(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.loads.Drop(name)
	delete(s.mu.members, name)
	s.mu.order = slices.DeleteFunc(s.mu.order, func(w *member) bool { return w == one })
	for _, e := range one.endpoints() {
		delete(s.mu.taken, e)
	}
	return err
}

// member is a worker that is there; nil if there is none.
func (s *Service) member(name index.Worker) *member {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.mu.members[name]; one != nil && !one.leaving {
		return one
	}
	return nil
}

// Posted takes in a batch of events of a worker that posts them.
func (s *Service) Posted(name index.Worker, epoch string, seq uint64, batch []byte) (next uint64, err error) {
	one := s.member(name)
	switch {
	case one == nil:
		return 0, fmt.Errorf("events: %w %s; register it first", index.ErrUnknownWorker, name)
	case one.engine == nil || one.Events != Post:
		return 0, refuse(ErrNoPost, "worker %s; register it with events: post", name)
	}
	if pause := one.engine.Pace(); pause > 0 {
		return 0, refuse(feed.ErrIgnore, "worker %s says more blocks a second than are taken; post again in %v", name, pause.Round(time.Millisecond))
	}
	v, err := one.engine.Post(epoch, seq, batch)
	next, _ = one.engine.Next()
	switch {
	case v == feed.Gap:
		return next, refuse(ErrGap, "batch %d of worker %s; post from %d on, or all under another epoch", seq, name, next)
	case v == feed.Restart:
		return next, refuse(ErrRestart, "batch %d of worker %s; a publisher that begins anew takes another epoch", seq, name)
	case err != nil:
		return next, fmt.Errorf("events, batch %d: %w", seq, err)
	}
	return next, nil
}
