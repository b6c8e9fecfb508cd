package spin

import (
	"testing"
	"testing/synctest"
	"time"
)

// dozes is a machine on which polling is off, and a wait whose messages came soon.
func dozes(t *testing.T, sleep func(uintptr, time.Duration) bool) (*machine, *Wait) {
	m := newMachine(4)
	m.sleep = sleep
	m.switchOff(time.Now(), pressed)
	w := m.wait()
	if w.Again() {
		t.Fatal("it polls while polling is off")
	}
	return m, w
}

// A wait dozes once, while polling is off, and says whether the message came.
func TestDoze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, came := range []bool{true, false} {
			var slept []time.Duration
			m, w := dozes(t, func(fd uintptr, d time.Duration) bool {
				if fd != 9 {
					t.Errorf("it waits for descriptor %d", fd)
				}
				slept = append(slept, d)
				return came
			})
			if got := w.Doze(9); got != came {
				t.Errorf("a message came: %t; it says %t", came, got)
			}
			if w.Again() || w.Doze(9) {
				t.Error("it dozes twice in a wait")
			}
			w.Over()
			_ = w.Again()
			_ = w.Doze(9)
			w.Over()
			if s := m.stats(time.Now()); len(slept) != 2 || slept[0] != dozeFor || s.Dozes != 2 || (s.Woken == 2) != came || m.pollers.Load() != 0 {
				t.Errorf("slept %v; %d have a place; %+v", slept, m.pollers.Load(), s)
			}
		}
	})
}

// A doze takes a place, and there is none without.
func TestDozesInPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		depth, most := 0, 0
		var next func() bool
		m, w := dozes(t, func(uintptr, time.Duration) bool {
			depth++
			most = max(most, depth)
			next()
			depth--
			return true
		})
		next = func() bool {
			other := m.wait()
			_ = other.Again()
			return other.Doze(9)
		}
		if !w.Doze(9) || most != int(m.maxPollers()) {
			t.Errorf("%d doze at a time, want %d", most, m.maxPollers())
		}
		m.busy.Add(3)
		if next() {
			t.Error("it dozes while all other processors are busy")
		}
	})
}

// Waits that no poll would have caught do not doze, and those that never poll neither.
func TestDozesSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, w := dozes(t, func(uintptr, time.Duration) bool { return true })
		for range 10 {
			time.Sleep(time.Minute)
			w.Over()
			_ = w.Again()
		}
		if w.Doze(9) {
			t.Error("it dozes where messages are a minute apart")
		}
		var never Wait
		never.start(m.host, 0, true)
		if _ = never.Again(); never.Doze(9) {
			t.Error("it dozes though it never polls")
		}
	})
}

// Many connections leave their sockets to the runtime's poller.
func TestManyDoNotDoze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, w := dozes(t, func(uintptr, time.Duration) bool { return true })
		other, third := m.wait(), m.wait()
		for range 3 { // of four processors two connections take all
			for _, x := range []*Wait{other, third, w} {
				_ = x.Again()
				x.Over()
			}
			time.Sleep(tick)
		}
		if _ = w.Again(); w.Doze(9) {
			t.Error("it dozes while three connections are active")
		}
		w.Over()
		time.Sleep(3 * tick)
		if _ = w.Again(); !w.Doze(9) {
			t.Error("it does not doze alone")
		}
	})
}
