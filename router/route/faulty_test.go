package route

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvstored/kvstored/router/feed"
	"github.com/kvstored/kvstored/router/feed/feedtest"
)

var faultyTime = flag.Duration("faulty-time", 2*time.Second, "how long TestFaultyWorkers gives the service to find out, and then measures, by a clock of its own; from 30s on with the default grace and silence")

const (
	faultyWorkers = 8
	faultyRate    = 200 // requests a second
	faultyRoom    = 600 // blocks of a worker
)

// faulty is an engine with a cache by last use, which tells of it.
type faulty struct {
	*feedtest.Engine
	id     string
	use    []int        // blocks, last used at the end
	has    map[int]bool // of use
	silent bool         // tells nothing any more
	noise  func()       // called for each request
	late   bool         // the service had not heard all of it when it chose

	asked, wasted, hit int // tokens
}

// moved is a clock that only its test moves.
type moved struct{ nanos atomic.Int64 }

func (m *moved) now() time.Time { return time.Unix(0, m.nanos.Load()) }

// heard waits until the service has all that a worker has said. What was said before there
// was a subscriber is asked for when another batch comes.
func (r *rig) heard(w *faulty) {
	r.Helper()
	for end, n := time.Now().Add(time.Minute), 0; !r.hasHeard(w); n++ {
		if time.Now().After(end) {
			stats, err := r.publisher(w).Stats()
			r.Fatalf("the service has not heard all that worker %s said: %+v, %v", w.id, stats, err)
		}
		if n%1000 == 999 {
			w.Say(false)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// hasHeard reports whether the service has all that a worker has said.
func (r *rig) hasHeard(w *faulty) bool {
	next, begun := r.publisher(w).Next()
	return begun && next == w.Next()
}

func (r *rig) publisher(w *faulty) *feed.Publisher {
	all := r.s.all()
	return all[slices.IndexFunc(all, func(m *member) bool { return m.ID == w.id })].engine
}

// request has the engine compute a prompt of which it is said to have so many
// tokens. Ends of prompts go first.
func (w *faulty) request(prompt []int, said int) {
	known := 0
	for known < len(prompt) && w.has[prompt[known]] {
		known++
	}
	tokens := len(prompt) * feedtest.BlockTokens
	w.asked += tokens
	w.hit += min(known*feedtest.BlockTokens, said)
	if !w.late {
		w.wasted += max(said-known*feedtest.BlockTokens, 0)
	}
	var events []any
	if known < len(prompt) {
		var parent any
		if known > 0 {
			parent = prompt[known-1]
		}
		events = append(events, feedtest.Stored(parent, prompt[known:]...))
	}
	w.use = slices.DeleteFunc(w.use, func(b int) bool { return slices.Contains(prompt, b) })
	for i := len(prompt) - 1; i >= 0; i-- {
		w.use = append(w.use, prompt[i])
		w.has[prompt[i]] = true
	}
	if over := len(w.use) - faultyRoom; over > 0 {
		events = append(events, feedtest.Removed(w.use[:over]...))
		for _, b := range w.use[:over] {
			delete(w.has, b)
		}
		w.use = slices.Clone(w.use[over:])
	}
	if w.noise != nil {
		w.noise()
	}
	if !w.silent {
		w.Say(false, events...)
	}
}

func (w *faulty) lose() { w.use, w.has = nil, make(map[int]bool) }

// A worker loses its cache and says nothing, one starts anew, one stops telling, one
// sends garbage, one floods. Some seconds later next to none of what the service
// says of any of them is wrong, and it still finds the prompts of the three others.
func TestFaultyWorkers(t *testing.T) {
	clock := new(moved)
	r := newRig(t, func(o *Options) {
		o.Blocks, o.Now = 5000, clock.now
		if *faultyTime < 30*time.Second {
			o.Grace, o.Silence = time.Second, time.Second
		}
	})
	var all []*faulty
	for i := range faultyWorkers {
		w := &faulty{Engine: feedtest.NewEngine(t), id: fmt.Sprint(i), has: make(map[int]bool)}
		w.Start()
		t.Cleanup(w.End)
		all = append(all, w)
		one := Worker{ID: w.id, Model: "m", Events: w.Events(), Replay: w.Replay(), Prefill: 200}
		if i == 0 {
			one.TTLSeconds = max(int(faultyTime.Seconds())/2, 1)
		}
		if err := r.s.Register(one); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range all { // batch 0 is told once there is a subscriber
		w.Say(true, feedtest.Removed(1))
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	load := &sessions{rnd: rnd}
	r.play(clock, all, load)
	before := hits(all[5:])

	all[0].lose()
	all[1].lose()
	all[1].End()
	all[1].Start()
	all[1].Say(false)
	all[2].silent = true
	all[3].silent, all[3].noise = true, func() { all[3].Raw(false, []byte(fmt.Sprint("garbage ", rnd.Uint64()))) }
	flood := 1 << 30
	all[4].noise = func() {
		for range 5 {
			blocks := make([]int, 2000)
			for i := range blocks {
				flood++
				blocks[i] = flood
			}
			all[4].Say(false, feedtest.Stored(nil, blocks...))
		}
	}
	r.play(clock, all, load)
	for _, w := range all {
		w.asked, w.wasted, w.hit = 0, 0, 0
	}
	r.play(clock, all, load)
	for i, w := range all {
		what := []string{"loses", "restarts", "stops", "garbage", "floods", "well", "well", "well"}[i]
		t.Logf("%-8s asked for %6d tokens, %6d found, %4d of them in vain (%.2f %%)", what, w.asked, w.hit+w.wasted, w.wasted, 100*float64(w.wasted)/float64(max(w.asked, 1)))
		if w.asked == 0 {
			t.Errorf("%s: nothing was asked of it", what)
		}
		if float64(w.wasted) > 0.01*float64(w.asked) {
			t.Errorf("%s: %d of %d tokens were said to be there and were not: %+v", what, w.wasted, w.asked, r.s.Workers()[i].Engine)
		}
	}
	if after := hits(all[5:]); after < 0.8*before || before == 0 {
		t.Errorf("the others found %.2f of their tokens before, %.2f now", before, after)
	}
}

// hits is the share of tokens that some workers had.
func hits(all []*faulty) float64 {
	hit, asked := 0, 0
	for _, w := range all {
		hit, asked = hit+w.hit, asked+w.asked
	}
	return float64(hit) / float64(max(asked, 1))
}

// sessions are conversations that grow by some blocks at a time.
type sessions struct {
	rnd  *rand.Rand
	open [][]int
	next int
}

func (s *sessions) prompt() []int {
	if len(s.open) < 80 {
		s.open = append(s.open, nil)
	}
	i := s.rnd.IntN(len(s.open))
	for range 1 + s.rnd.IntN(6) {
		s.next++
		s.open[i] = append(s.open[i], s.next)
	}
	p := slices.Clone(s.open[i])
	if len(p) > 60 {
		s.open[i] = nil
	}
	return p
}

// play sends requests for a while, and each is heard of before the next, but for those of
// workers that make noise.
func (r *rig) play(clock *moved, all []*faulty, load *sessions) {
	t := r.T
	t.Helper()
	var open []uint64
	for n := range int(faultyTime.Seconds() * faultyRate) {
		clock.nanos.Add(int64(time.Second / faultyRate))
		if n%faultyRate == 0 { // as Run does
			r.s.Tick()
			r.s.index.Expire()
		}
		for _, w := range all {
			w.late = w.noise != nil && !r.hasHeard(w)
		}
		prompt := load.prompt()
		got, err := r.s.Select(&Selection{Prompt: Prompt{Model: "m", Tokens: feedtest.Tokens(prompt...)}, Reserve: true})
		if err != nil {
			t.Fatal(err)
		}
		w := all[slices.IndexFunc(all, func(w *faulty) bool { return w.id == got.ID })]
		w.request(prompt, r.said(got, prompt))
		if w.noise == nil {
			r.heard(w)
		}
		if open = append(open, got.Reservation); len(open) > faultyWorkers {
			if err := r.s.Progress(&Progress{Reservation: open[0]}, true); err != nil {
				t.Fatal(err)
			}
			open = open[1:]
		}
	}
	for _, id := range open {
		if err := r.s.Progress(&Progress{Reservation: id}, true); err != nil {
			t.Fatal(err)
		}
	}
}

// said is how many tokens the service has said that the worker has: the last one
// of a prompt is computed all the same, so a block that is not needed is no waste.
func (r *rig) said(got *Selected, prompt []int) int {
	if got.Reused == len(prompt)*feedtest.BlockTokens-1 {
		return got.Reused + 1
	}
	return got.Reused
}
