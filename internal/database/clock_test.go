package database

import (
	"net"
	"testing"
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
