package spin

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// machine is one whose scheduler a test is.
type machine struct {
	*host
	waited   time.Duration    // by the thread, for a processor
	unknown  bool             // that cannot be read
	stalls   [2]time.Duration // of the machine and of the group
	pressure int              // times that was read
	threads  int              // that run or want to; 0: that cannot be read
}

func newMachine(processors int) *machine {
	m := &machine{}
	m.host = newHost(time.Now(), processors,
		func() (int, time.Duration, bool) { return 7, m.waited, !m.unknown },
		func() (time.Duration, time.Duration) { m.pressure++; return m.stalls[0], m.stalls[1] },
		func() (int, bool) { return m.threads, m.threads > 0 })
	return m
}

func (m *machine) wait() *Wait {
	w := &Wait{}
	w.start(m.host, 16*time.Second, true)
	return w
}

// polls begins a wait and reports whether it polls, for no time at all.
func polls(w *Wait) bool {
	defer w.Forget()
	return w.Again()
}

// lose has a poll of w lose the processor for d.
func (m *machine) lose(t *testing.T, w *Wait, d time.Duration) {
	t.Helper()
	if !w.Again() {
		t.Fatal("it does not poll")
	}
	time.Sleep(d)
	m.waited += d
}

// A poll that loses the processor for a time slice ends, and none polls for a
// second; each time that it is so again, for twice as long.
func TestLostProcessor(t *testing.T) {
	for name, unknown := range map[string]bool{"known": false, "unknown": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(2)
				m.unknown = unknown
				w, other := m.wait(), m.wait()
				for i, pause := range []time.Duration{firstPause, 2 * firstPause, 4 * firstPause, longestPause, longestPause} {
					m.lose(t, w, mostLost+time.Millisecond)
					if w.Again() {
						t.Error("it polls on")
					}
					if s := m.stats(time.Now()); !s.Off || s.Lost != uint64(i+1) || s.Cut != uint64(i+1) {
						t.Errorf("%+v", s)
					}
					w.Forget()
					time.Sleep(pause - time.Millisecond)
					if polls(other) {
						t.Errorf("another connection polls within %v", pause)
					}
					time.Sleep(time.Millisecond)
				}
				time.Sleep(2 * longestPause)
				m.lose(t, w, mostLost+time.Millisecond)
				w.Over()
				if time.Sleep(firstPause); !polls(other) {
					t.Error("it is off for longer than at first, though it was on for long")
				}
			})
		})
	}
}

// Time that was lost, but not to a thread that wanted the processor, costs nothing;
// nor do a few moments now and then.
func TestNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(2)
		w := m.wait()
		for range 1000 {
			if !w.Again() {
				t.Fatal("it does not poll")
			}
			time.Sleep(2 * mostLost) // the hypervisor, or a goroutine
			w.Over()
		}
		for range 1000 {
			m.lose(t, w, lostFor)
			w.Over()
			time.Sleep(lostFor * lostOfTime)
		}
		if s := m.stats(time.Now()); s.Off || s.Lost > 0 || s.Gained != 2000 || s.Polls != 2000 {
			t.Errorf("%+v", s)
		}
		for range 200 { // more than a tenth of the time
			if !polls(w) {
				return
			}
			m.lose(t, w, lostFor)
			w.Over()
			time.Sleep(lostFor)
		}
		t.Error("it polls on where it loses half of its time")
	})
}

// Two ends that find themselves on one processor, while there is one for each, poll
// on; beside another thread they do not.
func TestOneProcessorForBoth(t *testing.T) {
	for _, threads := range []int{2, 3} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(2)
			m.threads = threads
			w := m.wait()
			m.lose(t, w, 2*mostLost)
			if got := w.Again(); got != (threads == 2) {
				t.Errorf("%d threads: it polls on: %t", threads, got)
			}
			w.Forget()
		})
	}
}

// None polls where the connections that are active would take all processors, and
// for a second after.
func TestShared(t *testing.T) {
	for _, c := range []struct {
		processors, connections int
		apart                   time.Duration
		polls                   bool
	}{
		{2, 1, 0, true},
		{2, 2, 0, false},
		{2, 2, 3 * tick, true},
		{8, 4, 0, true},
		{8, 5, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(c.processors)
			ws := make([]*Wait, c.connections)
			for i := range ws {
				ws[i] = m.wait()
			}
			for range 5 {
				time.Sleep(3 * tick)
				for _, w := range ws {
					_ = w.Again()
					w.Over()
					time.Sleep(c.apart)
				}
			}
			if got := polls(ws[0]); got != c.polls {
				t.Errorf("%+v: it polls: %t; %+v", c, got, m.stats(time.Now()))
			}
			if !c.polls {
				if s := m.stats(time.Now()); s.Shared != 1 || !s.Off {
					t.Errorf("%+v: %+v", c, s)
				}
				if time.Sleep(firstPause); !polls(ws[0]) {
					t.Errorf("%+v: it is off for ever", c)
				}
			}
		})
	}
}

// A connection that is active once, as that of a program which asks for statistics,
// stops the polling of others for a moment only.
func TestSharedForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(2)
		w, other := m.wait(), m.wait()
		for range 10 {
			_ = w.Again()
			w.Over()
			_ = other.Again()
			other.Over()
			if polls(w) {
				t.Error("it polls beside the other")
			}
			if time.Sleep(sharedPause); !polls(w) {
				t.Error("it does not poll any more")
			}
			time.Sleep(sharedTime)
		}
		if s := m.stats(time.Now()); s.Shared != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A poll under way ends when another connection becomes active.
func TestSharedEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(2)
		w, other := m.wait(), m.wait()
		_ = w.Again()
		w.Over()
		if !w.Again() {
			t.Fatal("it does not poll")
		}
		_ = other.Again()
		if other.Over(); w.Again() {
			t.Error("it polls on")
		}
		if s := m.stats(time.Now()); s.Cut != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// Where threads wait for processors, of the machine or of the group, none polls.
func TestPressure(t *testing.T) {
	for kind := range 2 {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(2)
			m.stalls = [2]time.Duration{time.Hour, time.Hour} // since the boot
			w := m.wait()
			step := func(share time.Duration) bool {
				time.Sleep(pressureEvery)
				m.stalls[kind] += pressureEvery * share / 100
				return polls(w)
			}
			for i, c := range []struct {
				percent time.Duration
				polls   bool
			}{{0, true}, {49, true}, {51, false}, {100, true}, {49, true}} { // the fourth: while it was off
				if got := step(c.percent); got != c.polls {
					t.Errorf("kind %d, look %d, %d %%: it polls: %t", kind, i, c.percent, got)
				}
			}
			before := m.pressure
			for range 1000 {
				_ = polls(w)
			}
			if m.pressure != before {
				t.Error("the pressure is read for each wait")
			}
			time.Sleep(2 * stalePressure)
			if m.stalls[kind] += 2 * stalePressure; !polls(w) {
				t.Error("what was long ago counts as now")
			}
			if s := m.stats(time.Now()); s.Pressed != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// What a process of this kernel reads.
func TestReadings(t *testing.T) {
	thread, d, ok := waited()
	machine, group := pressure()
	threads, all := runnable()
	t.Logf("%d threads run or want to (known: %t)", threads, all)
	t.Logf("thread %d has waited for %v (known: %t); machine %v, group %v", thread, d, ok, machine, group)
	if ok && (thread <= 0 || d < 0) || machine < 0 || group < 0 || all && threads < 1 {
		t.Error("that makes no sense")
	}
}

// Many connections share a host; their counts add up.
func TestManyWaits(t *testing.T) {
	h := newHost(time.Now(), 8, waited, pressure, runnable)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var w Wait
			w.start(h, time.Millisecond, true)
			for i := range 2000 {
				_ = w.Again()
				if i%3 == 0 {
					w.Forget()
				} else {
					w.Over()
				}
			}
		})
	}
	wg.Wait()
	if s := h.stats(time.Now()); h.pollers.Load() != 0 || s.Gained+s.Vain+s.Cut != s.Polls {
		t.Errorf("%d poll; %+v", h.pollers.Load(), s)
	}
}
