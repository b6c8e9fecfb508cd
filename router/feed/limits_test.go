package feed

import (
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/router/event"
	"github.com/kvstored/kvstored/router/feed/feedtest"
)

// A batch that was posted twice counts once, one behind a gap does not count, and
// another epoch begins anew.
func TestPost(t *testing.T) {
	r := newRig(t, Options{})
	r.p.Lost()
	post := func(epoch string, seq uint64, want Verdict, events ...any) {
		t.Helper()
		if v, err := r.p.Post(epoch, seq, batch(events...)); v != want || err != nil {
			t.Fatalf("batch %d of %s: %v, %v; want %v", seq, epoch, v, err, want)
		}
	}
	post("a", 7, Applied, stored(nil, 1, 2))
	r.want(2, 1, 2)
	post("a", 7, Duplicate, stored(nil, 1, 2))
	post("a", 9, Gap, removed(2))
	r.want(2, 1, 2)
	post("a", 8, Applied, stored(2, 3))
	post("a", 9, Applied, removed(3))
	post("a", 9, Restart, removed(2))
	r.want(2, 1, 2, 3)
	post("b", 0, Applied, stored(nil, 1))
	r.want(1, 1, 2, 3)

	r.now = r.now.Add(29 * time.Second)
	post("b", 1, Applied) // that it is there is enough
	r.now = r.now.Add(29 * time.Second)
	r.p.Tick()
	r.want(1, 1)
	r.now = r.now.Add(time.Second)
	r.p.Tick()
	r.want(0, 1)
	post("b", 2, Applied, stored(nil, 5))
	r.want(1, 5)

	if _, err := r.p.Post("b", 3, []byte("garbage")); err == nil {
		t.Fatal("garbage is taken")
	}
	r.want(0, 5)
	if _, err := r.p.Post("b", 4, batch(stored(nil, 5))); !errors.Is(err, ErrIgnore) {
		t.Fatalf("right after garbage: %v", err)
	}
	r.now = r.now.Add(firstPenalty)
	post("b", 5, Applied, stored(nil, 6))
	r.want(1, 6)
}

// A publisher with more blocks than it may have is forgotten, and not heard for a
// while; one that removes as much as it stores is not.
func TestFlood(t *testing.T) {
	r := newRig(t, Options{MaxBlocks: 100})
	seq := uint64(0)
	for n := range 1000 {
		r.live(seq, stored(nil, 1000+n))
		r.live(seq+1, removed(1000+n))
		seq += 2
	}
	for n := range 100 {
		r.live(seq, stored(nil, 1+n))
		seq++
	}
	r.want(1, 1)
	for n := range 100 { // a block that is told again is no other
		r.live(seq, stored(nil, 1+n))
		seq++
	}
	if _, err := r.p.Live(seq, batch(stored(nil, 500))); !errors.Is(err, ErrFlood) {
		t.Fatalf("block 101 of 100: %v", err)
	}
	r.want(0, 1)
	r.want(0, 500)
	if _, err := r.p.Live(seq+1, batch(stored(nil, 501))); !errors.Is(err, ErrIgnore) {
		t.Fatalf("behind it: %v", err)
	}
	r.now = r.now.Add(firstPenalty)
	r.live(seq+2, stored(nil, 502))
	r.want(1, 502)
	if s, _ := r.p.Stats(); s.Floods != 1 || s.Held != 1 {
		t.Errorf("%+v", s)
	}
}

// Blocks beyond the rate are paid for in time.
func TestPace(t *testing.T) {
	r := newRig(t, Options{Rate: 1000, MaxBlocks: 1 << 30})
	hashes := make([]int, 1<<10)
	for i := range hashes {
		hashes[i] = i + 1
	}
	for seq := range uint64(1 << 10) {
		if pause := r.p.Pace(); pause != 0 {
			t.Fatalf("batch %d: a pause of %v", seq, pause)
		}
		r.live(seq, stored(nil, hashes...))
	}
	r.live(1<<10, stored(nil, hashes...))
	if pause := r.p.Pace(); pause < 2*time.Second || pause > 3*time.Second {
		t.Errorf("a pause of %v for some 2,000 blocks too many", pause)
	}
	r.now = r.now.Add(3 * time.Second)
	if pause := r.p.Pace(); pause != 0 {
		t.Errorf("a pause of %v after it", pause)
	}
}

// A publisher that says nothing though blocks were computed several times is
// forgotten; an idle one is not.
func TestSilence(t *testing.T) {
	r := newRig(t, Options{})
	r.live(0, stored(nil, 1))
	tick := func(d time.Duration) {
		r.now = r.now.Add(d)
		r.p.Tick()
	}
	tick(time.Hour)
	r.want(1, 1)
	r.p.Due()
	r.p.Due()
	tick(time.Hour)
	r.want(1, 1) // both may have found all that they needed
	r.p.Due()
	r.live(1, stored(nil, 2)) // it has not stopped
	tick(time.Hour)
	r.want(1, 1)
	for range 3 {
		r.p.Due()
	}
	tick(9 * time.Second)
	r.want(1, 1)
	tick(time.Second)
	r.want(0, 1)
	for range 2 { // it speaks again, of all that came meanwhile too
		if v, err := r.p.Live(2, batch(stored(nil, 3))); v != Restart || err != nil {
			t.Fatalf("after silence: %v, %v", v, err)
		}
	}
	if v, err := r.p.Replay(1, batch(stored(nil, 2))); v != Duplicate || err != nil {
		t.Fatalf("what it said before: %v, %v", v, err)
	}
	r.want(0, 1)
	r.p.Reset()
	r.live(2, stored(nil, 3))
	r.want(1, 3)
	if s, _ := r.p.Stats(); s.Silences != 1 {
		t.Errorf("%+v", s)
	}
}

// A source that can be asked for all there is is asked again, once, when blocks
// whose parents never came were dropped; and later again, if that goes on.
func TestStale(t *testing.T) {
	r := newRig(t, Options{})
	r.p.canAsk()
	asked := func() bool {
		select {
		case <-r.p.silent:
			return true
		default:
			return false
		}
	}
	seq := uint64(0)
	orphan := func() { // a child of nobody, which waits in vain
		r.live(seq, stored(nil, 1), stored(1_000_000+int(seq), 2_000_000+int(seq)))
		seq++
		r.now = r.now.Add(time.Minute)
		r.p.Tick()
	}
	orphan()
	r.want(1, 1)
	r.now = r.now.Add(time.Second)
	if r.p.Tick(); asked() {
		t.Error("asked again at once")
	}
	r.now = r.now.Add(time.Second)
	if r.p.Tick(); !asked() {
		t.Error("not asked again")
	}
	r.want(0, 1)
	r.p.Reset()
	r.now = r.now.Add(time.Hour)
	if r.p.Tick(); asked() {
		t.Error("asked again for nothing")
	}
	orphan()
	r.now = r.now.Add(3 * time.Second)
	if r.p.Tick(); asked() {
		t.Error("asked as soon as the first time")
	}
	r.now = r.now.Add(time.Second)
	if r.p.Tick(); !asked() {
		t.Error("not asked again")
	}
}

// What a connection brings after it was asked to end is not taken: it would count as
// all there is. The next one asks for that.
func TestAsking(t *testing.T) {
	for name, then := range map[string]func(p *Publisher){
		"between two batches":          func(*Publisher) {},
		"before the number of a batch": func(p *Publisher) { p.Expect(7) },
	} {
		r := newRig(t, Options{})
		r.live(6, stored(nil, 1))
		r.p.mu.Lock()
		r.p.askAgain()
		r.p.mu.Unlock()
		then(r.p)
		if _, err := r.p.Live(7, batch(stored(nil, 2))); !errors.Is(err, ErrIgnore) {
			t.Errorf("%s: a live batch: %v", name, err)
		}
		if err := r.p.Told([]event.Event{{Kind: event.Cleared}}); !errors.Is(err, ErrIgnore) {
			t.Errorf("%s: a batch of a daemon: %v", name, err)
		}
		if next, begun := r.p.Next(); begun {
			t.Errorf("%s: it goes on with %d, and what was before is missing", name, next)
		}
		r.want(0, 2)
		if r.p.Reset(); len(r.p.silent) > 0 {
			t.Errorf("%s: the connection that asks is ended", name)
		}
		r.live(8, stored(nil, 3))
		r.want(1, 3)
	}
}

// A source that is heard again after garbage is asked for what it had before, even if
// it said nothing while it was not heard.
func TestAfterGarbage(t *testing.T) {
	e := feedtest.NewEngine(t)
	e.Start()
	defer e.End()
	r := newRig(t, Options{})
	s := &Subscriber{Publisher: r.p, Events: e.Events(), Replay: e.Replay(), Log: zerolog.Nop()}
	e.Say(true, stored(nil, 1))
	s.catchUp(t.Context())
	r.want(1, 1)
	s.live(t.Context(), 1, []byte{0xc1})
	r.want(0, 1)
	r.now = r.now.Add(time.Hour)
	e.Say(true, stored(1, 2))
	s.live(t.Context(), 2, batch(stored(1, 2)))
	r.want(2, 1, 2)
}
