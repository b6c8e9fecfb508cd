package database

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

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
