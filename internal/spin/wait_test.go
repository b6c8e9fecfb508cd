package spin

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// alone is a machine on which no thread waits for a processor.
func alone(processors int) *host {
	return newHost(time.Now(), processors, func() (int, time.Duration, bool) { return 1, 0, true }, func() (time.Duration, time.Duration) { return 0, 0 }, func() (int, bool) { return 0, false })
}

// The window follows what waits there are: it catches those it can, and costs
// next to nothing where it cannot.
func TestWindow(t *testing.T) {
	const longest = time.Millisecond
	for name, c := range map[string]struct {
		start time.Duration
		waits []time.Duration // repeated
		want  time.Duration   // in the end, at least
		most  time.Duration   // polled in vain, of a thousand waits
	}{
		"replies at once":    {0, []time.Duration{10 * time.Microsecond}, 10 * time.Microsecond, 0},
		"copies of chunks":   {0, []time.Duration{350 * time.Microsecond, 20 * time.Microsecond}, 350 * time.Microsecond, longest},
		"steps of an engine": {longest, []time.Duration{20 * time.Millisecond}, 0, 2 * longest},
		"bursts": {longest, []time.Duration{20 * time.Millisecond, 90 * time.Microsecond, 90 * time.Microsecond, 90 * time.Microsecond},
			90 * time.Microsecond, 250 * longest / 4},
	} {
		t.Run(name, func(t *testing.T) {
			window, vain := c.start, time.Duration(0)
			for i := range 1000 {
				d := c.waits[i%len(c.waits)]
				if d > window {
					vain += window
				}
				window = nextWindow(window, longest, d)
			}
			if window < c.want || window > longest || vain > c.most {
				t.Errorf("the window ends at %v, want at least %v; %v polled in vain, want at most %v", window, c.want, vain, c.most)
			}
		})
	}
	if w := nextWindow(0, 0, time.Second); w != 0 {
		t.Errorf("a connection that never polls polls for %v", w)
	}
}

// Only half of the processors poll, and a Wait that stops polling, in any way,
// makes room for another.
func TestSlots(t *testing.T) {
	h := alone(8)
	waits := make([]Wait, 2*h.maxPollers()+1)
	polling := func() (n int32) {
		for i := range waits {
			if waits[i].slot {
				n++
			}
		}
		if n != h.pollers.Load() {
			t.Errorf("%d poll, %d are counted", n, h.pollers.Load())
		}
		return n
	}
	for i := range waits {
		waits[i].start(h, time.Hour, true)
	}
	for range 2 {
		for i := range waits {
			if waits[i].Again() != waits[i].slot {
				t.Errorf("%d may poll without a place, or not with one", i)
			}
		}
		if n := polling(); n != h.maxPollers() {
			t.Errorf("%d poll, want %d", n, h.maxPollers())
		}
	}
	for i := range waits {
		if i%2 == 0 {
			waits[i].Over()
		} else {
			waits[i].Forget()
		}
	}
	if n := polling(); n != 0 {
		t.Errorf("%d poll after their waits", n)
	}
	var never Wait
	never.start(h, 0, true)
	if never.Again() || polling() != 0 {
		t.Error("a wait polls that never should")
	}
	never.Over()
}

// A wait polls for its window, then sleeps, and goes on after that.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Wait
		w.start(alone(2), 16*time.Second, true)
		for range 3 { // the window starts at 1 s
			if !w.Again() {
				t.Fatal("it does not poll")
			}
		}
		time.Sleep(time.Second + 1)
		for range 2 {
			if w.Again() {
				t.Error("it polls for longer than its window")
			}
		}
		time.Sleep(time.Second)
		w.Over() // after 2 s: a longer poll would have caught it
		if !w.Again() {
			t.Fatal("it does not poll in the next wait")
		}
		time.Sleep(3 * time.Second / 2)
		if !w.Again() {
			t.Error("the window has not grown")
		}
		w.Forget()
		for range 10 { // nothing comes in time any more
			_ = w.Again()
			time.Sleep(time.Hour)
			w.Over()
		}
		if w.Again() {
			t.Error("it still polls where that was never worthwhile")
		}
		w.Forget()
	})
}

// Each poll counts once, as what came of it.
func TestOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := alone(2)
		var w Wait
		w.start(h, 16*time.Second, true)
		for range 3 {
			_ = w.Again()
			w.Over()
		}
		for range 2 {
			_ = w.Again()
			time.Sleep(w.window + 1)
			_ = w.Again() // and sleeps
			w.Over()
		}
		_ = w.Again()
		w.Forget()
		if s, want := h.stats(time.Now()), (Stats{Polls: 6, Gained: 3, Vain: 2, Cut: 1}); s != want {
			t.Errorf("%+v, want %+v", s, want)
		}
	})
}

// A poller that lost the processor to another thread yields it until it finds
// itself alone again.
func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, mutual := range []bool{true, false} {
			for name, end := range map[string]func(w *Wait){
				"in the middle": func(w *Wait) { _ = w.Again() },
				"at the end":    (*Wait).Over,
			} {
				var w Wait
				w.start(alone(2), time.Second, mutual)
				if !w.Again() {
					t.Fatal("it does not poll")
				}
				time.Sleep(lostFor)
				if end(&w); (w.crowd > 0) != mutual {
					t.Errorf("%s, the peer polls %t: crowd is %d after losing the processor", name, mutual, w.crowd)
				}
				w.Over()
				for range crowded {
					_ = w.Again()
					time.Sleep(aloneFor - 1)
					w.Over()
				}
				if w.crowd > 0 {
					t.Errorf("%s: it yields for ever", name)
				}
			}
		}
	})
	if nextCrowd(crowded, aloneFor, false) != crowded || nextCrowd(0, lostFor-1, false) != 0 {
		t.Error("a poll that shows nothing changes something")
	}
	if nextCrowd(0, aloneFor, true) != crowded || nextCrowd(1, aloneFor-1, true) != 0 {
		t.Error("a thread that ran when the poller yielded is not seen, or one that did not is")
	}
}

// The end that is to do so leaves a processor that it shares with its peer, once it
// is clear that it does, where the other one is idle, and not again at once.
func TestParts(t *testing.T) {
	for name, c := range map[string]struct {
		processors, threads int
		parts               bool
		took                time.Duration // a poll, with the peer's turn in it
		want                int
	}{
		"with its peer":                  {2, 2, true, 2 * aloneFor, 1},
		"the peer's part":                {2, 2, false, 2 * aloneFor, 0},
		"alone":                          {2, 2, true, aloneFor / 2, 0},
		"beside a thread that computes":  {2, 2, true, lostFor, 0},
		"no processor is idle":           {2, 3, true, 2 * aloneFor, 0},
		"it cannot be told":              {2, 0, true, 2 * aloneFor, 0},
		"the kernel has a choice itself": {4, 2, true, 2 * aloneFor, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, left := newMachine(c.processors), 0
				m.threads, m.move = c.threads, func() { left++ }
				w := m.wait()
				if c.parts {
					w.Parts()
				}
				message := func() {
					_ = w.Again()
					time.Sleep(c.took)
					w.Over()
				}
				for range partAfter {
					message()
				}
				if left != 0 {
					t.Errorf("it has left %d times after %d polls", left, partAfter)
				}
				for range 4 * partAfter {
					message()
				}
				if left != c.want {
					t.Errorf("it has left %d times, want %d", left, c.want)
				}
				time.Sleep(partEvery)
				for range partAfter + 1 {
					message()
				}
				if left != 2*c.want {
					t.Errorf("it has left %d times in the end, want %d", left, 2*c.want)
				}
			})
		})
	}
}

// A poller that polls for long yields now and then, also to a peer that sleeps.
func TestYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, mutual := range []bool{true, false} {
			var w Wait
			w.start(alone(2), 16*time.Second, mutual)
			w.yielded = time.Now()
			var at []time.Duration
			for last := time.Duration(0); last < 3*yieldAfter; time.Sleep(aloneFor / 2) {
				if !w.Again() {
					t.Fatal("it does not poll")
				}
				if last = w.polled; w.asked && last > 0 {
					at = append(at, last)
				}
			}
			if want := []time.Duration{yieldAfter, 2 * yieldAfter, 3 * yieldAfter}; !slices.Equal(at, want) {
				t.Errorf("the peer polls %t: it yields after %v, want %v", mutual, at, want)
			}
			w.Forget()
		}
	})
}

// A poller yields as often where each of its waits is short.
func TestYieldsOverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Wait
		w.start(alone(2), 16*time.Second, true)
		yields := 0
		for range 1000 {
			if !w.Again() {
				t.Fatal("it does not poll")
			}
			if w.asked {
				yields++
			}
			time.Sleep(time.Microsecond)
			w.Over()
		}
		if yields != 5 { // the first, and each 200 us
			t.Errorf("it yields %d times in 1 ms", yields)
		}
	})
}
