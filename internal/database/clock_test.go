package database

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/rs/zerolog"
)

// reading is what the clocks of a machine say: so long after its start, and on a date
// that is off by a step.
func reading(since, step time.Duration) (t time.Time) {
	const monotonic, date = 1 << 63, 4_300_000_000 // seconds since 1885
	*(*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&t)) = struct {
		wall uint64
		ext  int64
	}{monotonic | uint64(date+(since+step)/time.Second)<<30, int64(since)}
	return t
}

// A request that has just been sent does not hang because the machine's clock is set
// (NTP, an operator, a virtual machine that is resumed): the process of the database
// would be ended for it.
func TestHangsByNoClockThatIsSet(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	now := reading(time.Second, 0)
	d := newDB(zerolog.Nop(), nil, []net.Conn{here})
	c := d.commits
	c.now = func() time.Time { return now }
	c.asked()
	for _, step := range []time.Duration{time.Hour, -time.Hour, 24 * 365 * time.Hour} {
		now = reading(2*time.Second, step)
		if was := reading(time.Second, 0); now.Sub(was) != time.Second || now.Round(0).Sub(was.Round(0)) != time.Second+step {
			t.Fatalf("the test's clock is wrong: %v", now)
		}
		if d.Hangs(time.Minute) {
			t.Errorf("the clock is set by %v: it hangs after a second", step)
		}
		if now = reading(2*time.Minute, step); !d.Hangs(time.Minute) {
			t.Errorf("the clock is set by %v: it does not hang after two minutes", step)
		}
	}
	c.answered()
	if d.Hangs(time.Minute) {
		t.Error("it hangs with its answer")
	}
}

// silent is a process that does not answer. It ends when it is killed.
type silent struct{ d *DB }

func (silent) Pid() int { return 0 }

func (silent) Wait() string { return "" }

func (s silent) Kill() { s.d.end(&Death{How: "signal: killed"}) }

// A process that does not answer is noticed, and can be ended; who waits for it
// is told why.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pairs []net.Conn
		for range Pairs {
			mine, its := net.Pipe()
			defer its.Close()
			pairs = append(pairs, mine)
		}
		d := newDB(zerolog.Nop(), nil, pairs)
		d.process = silent{d}
		const long = time.Minute
		if time.Sleep(2 * long); d.Hangs(0) {
			t.Error("a process that has nothing to do hangs")
		}
		asked := make(chan error, 3)
		go func() { asked <- d.Sync() }() // may take its time
		if time.Sleep(2 * long); d.Hangs(long) {
			t.Error("a process that syncs hangs")
		}
		go func() { asked <- d.Get([][]byte{[]byte("k")}, func(int, []byte) {}) }()
		go func() {
			for range 100 { // of several parts
				d.Batch().Set([]byte("k"), make([]byte, 60<<10))
			}
			asked <- d.Batch().Flush()
		}()
		if time.Sleep(long); d.Hangs(long) {
			t.Error("it hangs too soon")
		}
		if time.Sleep(time.Nanosecond); !d.Hangs(long) {
			t.Error("it does not hang")
		}
		why := errors.New("it hangs")
		d.Kill(why)
		for range 3 {
			if err := <-asked; !errors.Is(err, why) {
				t.Error(err)
			}
		}
		<-d.Ended()
	})
}
