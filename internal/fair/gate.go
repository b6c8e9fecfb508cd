package fair

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/unseen"
)

const (
	// slice is how long a turn computes before it lets others go first.
	slice = 200 * time.Microsecond
	// Work is light, and waits for no turn, while its user has computed for less
	// than lightShare of the last window: 1 ms of 10.
	window     = 10 * time.Millisecond
	lightShare = time.Millisecond
	// patience is for how long all places may be taken by the same turns: those
	// that block, against the rules, or that the machine does not let run, must
	// not stop all others. Then one more is let in.
	patience = 50 * time.Millisecond
)

// Gate lets in requests that compute, as many at a time as it has places. Users
// take turns by the time that they have computed, by start-time fair queueing,
// and so do the turns of one user, in order of arrival. Light work passes it by.
// It is safe for concurrent use.
type Gate struct {
	places  int
	machine Machine
	waiting atomic.Int32 // turns in line
	mu      struct {
		sync.Mutex
		taken int
		now   time.Duration // virtual time: the tag of the user served last
		moved time.Time     // when a turn was let in last
		line  []*User       // whose turns wait, in no order
	}
}

// Machine is what a Gate tells the machine that its turns compute on. Neither function
// may block; nil ones are not called.
type Machine struct {
	// Busy is told by how many the places change that are taken.
	Busy func(change int)
	// Yield lets threads run that wait for the processor of the calling one.
	Yield func()
}

// NewGate returns a gate with so many places; 0 stands for one less than there
// are processors, but one at least: the processor left is for light work, and
// looks whether something came for those that sleep.
func NewGate(places int, m Machine) *Gate {
	if m.Busy == nil {
		m.Busy = func(int) {}
	}
	if m.Yield == nil {
		m.Yield = func() {}
	}
	return &Gate{places: cmp.Or(places, max(1, runtime.GOMAXPROCS(0)-1)), machine: m}
}

// User is the account of all requests that count as one user's. It is safe for
// concurrent use.
type User struct {
	gate   *Gate
	window atomic.Int64 // number of the window that spent is about
	spent  atomic.Int64 // time computed in it
	// The gate's mutex guards these.
	tag   time.Duration // virtual time at which its next turn starts
	queue []*Turn
}

// NewUser returns a user who has computed nothing.
func (g *Gate) NewUser() *User { return &User{gate: g} }

// Turn is one strand of work, such as the requests of a connection, one after
// the other. It belongs to one goroutine at a time. A nil Turn never waits.
type Turn struct {
	user  *User
	start time.Time     // since when nothing was charged of the request at hand; zero once it has left
	began time.Time     // of its slice; zero: it waits for work
	in    bool          // it has a place
	locks int           // that it holds: then it lets others go first no more
	let   bool          // it was given one; the gate's mutex guards it
	next  chan struct{} // has one when it is let in
}

// NewTurn returns a strand of a user's work that waits for a request.
func (u *User) NewTurn() *Turn { return &Turn{user: u, next: make(chan struct{}, 1)} }

// epoch is what windows are counted from.
var epoch = time.Now()

// Begin begins a request, at a time that was just now. Unless its user's work is
// light it waits until its turn comes. It fails where ctx ends before: the turn has
// no place then, and the request is not to be made.
func (t *Turn) Begin(ctx context.Context, now time.Time) error {
	if t == nil {
		return nil
	}
	if waited, err := t.begin(ctx, now); waited {
		return err
	}
	if !t.in && t.user.heavy(now) {
		t.enter(ctx, now)
		return t.placed(ctx)
	}
	return nil
}

// BeginShort is Begin of a request that computes for some us, less than its bytes take in
// the socket, for which there are no turns: to wait for a place would cost more than the
// place is worth. It is charged all the same, and many of them one after the other wait
// after each slice.
func (t *Turn) BeginShort(ctx context.Context, now time.Time) error {
	if t == nil {
		return nil
	}
	_, err := t.begin(ctx, now)
	return err
}

// begin is what all requests begin with. It reports whether the turn has waited for a
// place, because its slice is over.
func (t *Turn) begin(ctx context.Context, now time.Time) (waited bool, err error) {
	t.start = now
	switch {
	case t.began.IsZero():
		t.began = now
	case now.Sub(t.began) >= slice: // one of many, one after the other
		t.yield(ctx, now)
		return true, t.placed(ctx)
	}
	return false, nil
}

// placed is the error of a turn that has waited for a place and has none.
func (t *Turn) placed(ctx context.Context) error {
	if t.in {
		return nil
	}
	t.start = time.Time{}
	return fmt.Errorf("wait for a turn: %w", context.Cause(ctx))
}

// End ends a request. The next one may begin at once, or Leave follows.
func (t *Turn) End(now time.Time) {
	if t != nil && !t.start.IsZero() {
		t.user.charge(now, now.Sub(t.start))
		t.start = time.Time{}
	}
}

// Yield lets others go first once the turn has computed for a slice: a long
// request calls it every now and then. Under a lock of Lock it does nothing.
func (t *Turn) Yield() { t.yieldIn(context.Background()) }

// yieldIn is Yield that waits no longer than ctx lasts. The turn has no place
// then.
func (t *Turn) yieldIn(ctx context.Context) {
	if t == nil || t.locks > 0 {
		return
	}
	now := time.Now()
	switch {
	case t.began.IsZero():
		t.began = now
	case now.Sub(t.began) >= slice:
		t.yield(ctx, now)
	}
}

func (t *Turn) yield(ctx context.Context, now time.Time) {
	unseen.Wake()
	if !t.start.IsZero() {
		t.user.charge(now, now.Sub(t.start))
		t.start = now
	}
	g := t.user.gate
	if t.in && g.waiting.Load() == 0 {
		runtime.Gosched() // light work that has no processor of the Go scheduler
		g.machine.Yield()
		t.resume()
		return
	}
	if t.in {
		g.leave(t.user, now.Sub(t.began))
	}
	g.machine.Yield()
	t.resume()
	t.enter(ctx, t.began)
}

// resume begins a slice now. To wait was not to compute.
func (t *Turn) resume() {
	t.began = time.Now()
	if !t.start.IsZero() {
		t.start = t.began
	}
}

// Leave gives the place back, if it has one. It is called before waiting for
// anything.
func (t *Turn) Leave() {
	if t == nil {
		return
	}
	if t.in || !t.start.IsZero() {
		t.Rest(time.Now())
	}
	t.began = time.Time{}
}

// Rest ends a request, at a time that was just now, and leaves.
func (t *Turn) Rest(now time.Time) {
	if t == nil {
		return
	}
	t.End(now)
	if t.in {
		t.in = false
		t.user.gate.leave(t.user, now.Sub(t.began))
	}
	t.began = time.Time{}
}

// enter waits from now on for a place, as long as ctx lasts.
func (t *Turn) enter(ctx context.Context, now time.Time) {
	t.in, t.began = true, now
	if t.user.gate.join(t) {
		return
	}
	t.in = t.await(ctx)
	t.resume()
}

// await waits until it is let in, and reports whether it was before ctx ended.
func (t *Turn) await(ctx context.Context) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case <-t.next:
			return true
		case <-ctx.Done():
			return t.user.gate.quit(t)
		case <-timer.C:
		}
		left := t.user.gate.push(t)
		if left <= 0 {
			return true
		}
		timer.Reset(left)
	}
}

// charge notes work that was done.
func (u *User) charge(now time.Time, d time.Duration) {
	if w := int64(now.Sub(epoch) / window); u.window.Load() != w {
		u.window.Store(w) // two at a time may forget a request: it is an estimate
		u.spent.Store(0)
	}
	u.spent.Add(int64(d))
}

// heavy reports whether its work must wait for turns.
func (u *User) heavy(now time.Time) bool {
	w := int64(now.Sub(epoch) / window)
	return u.spent.Load() >= int64(lightShare) && u.window.Load() >= w-1
}

// join takes a place for a turn, or has it wait.
func (g *Gate) join(t *Turn) (in bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := t.user
	if g.mu.taken < g.places && len(g.mu.line) == 0 {
		g.admit(u)
		return true
	}
	t.let = false
	if u.queue = append(u.queue, t); len(u.queue) == 1 {
		g.mu.line = append(g.mu.line, u)
	}
	g.waiting.Add(1)
	return false
}

// push lets a turn in although there is no place, if none was let in for as long
// as patience goes. Otherwise it returns how long that may still take.
func (g *Gate) push(t *Turn) (left time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.let { // this very moment
		<-t.next
		return 0
	}
	if left = patience - time.Since(g.mu.moved); left > 0 {
		return left
	}
	g.drop(t)
	g.admit(t.user)
	return 0
}

// quit takes a turn out of the line, unless it was let in this very moment.
func (g *Gate) quit(t *Turn) (let bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.let {
		<-t.next
		return true
	}
	g.drop(t)
	return false
}

// drop takes a turn out of the line; called with the mutex held.
func (g *Gate) drop(t *Turn) {
	u := t.user
	i := slices.Index(u.queue, t)
	u.queue = slices.Delete(u.queue, i, i+1)
	g.tidy(u)
	g.waiting.Add(-1)
}

// admit counts a place as taken by a user; called with the mutex held. A slice
// is charged in advance.
func (g *Gate) admit(u *User) {
	g.mu.taken++
	g.mu.moved = time.Now()
	g.machine.Busy(1)
	u.tag = max(u.tag, g.mu.now)
	g.mu.now = u.tag
	u.tag += slice
}

// leave gives a place back that was used for d, and lets the next ones in.
func (g *Gate) leave(u *User, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.taken--
	g.machine.Busy(-1)
	u.tag += d - slice
	for g.mu.taken < g.places && len(g.mu.line) > 0 {
		first := slices.MinFunc(g.mu.line, func(a, b *User) int { return cmp.Compare(a.tag, b.tag) })
		t := first.queue[0]
		first.queue = slices.Delete(first.queue, 0, 1)
		g.tidy(first)
		g.waiting.Add(-1)
		g.admit(first)
		t.let = true
		t.next <- struct{}{}
	}
}

// tidy takes a user without waiting requests out of the line; called with the
// mutex held.
func (g *Gate) tidy(u *User) {
	if len(u.queue) > 0 {
		return
	}
	last := len(g.mu.line) - 1
	g.mu.line[slices.Index(g.mu.line, u)] = g.mu.line[last]
	g.mu.line[last] = nil
	g.mu.line = g.mu.line[:last]
}

// Waiting is how many turns wait.
func (g *Gate) Waiting() int { return int(g.waiting.Load()) }
