package resp_test

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/resp"
)

// heavyUser is a user whose requests take places, which are counted from the end of
// compute on: it has him compute for an hour.
func heavyUser(t *testing.T) (o resp.Options, places *atomic.Int64, compute func()) {
	places = new(atomic.Int64)
	gate := fair.NewGate(1, fair.Machine{Busy: func(change int) {
		if change > 0 {
			places.Add(1)
		}
	}})
	user := gate.NewUser()
	heavy := user.NewTurn()
	o.Enter = func(net.Conn) (*fair.Turn, func(), error) {
		turn := user.NewTurn()
		return turn, turn.Leave, nil
	}
	return o, places, func() {
		if err := heavy.Begin(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		heavy.Rest(time.Now().Add(time.Hour))
		places.Store(0)
	}
}

// A value takes turns while it arrives, not only when it is stored: writers of large
// values share the processors with others by user.
func TestValuesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, places, compute := heavyUser(t)
		r := newRig(t, o)
		c := r.dial(r.unix)
		compute()
		set := encode("SET", "a", strings.Repeat("x", 1<<20))
		c.send(set[:len(set)/2])
		synctest.Wait()
		if places.Load() == 0 {
			t.Error("half of a value has arrived, and it took no turn")
		}
		c.send(set[len(set)/2:])
		c.expect("+OK\r\n")
	})
}

// A GET and a SET of a value that stays in the caches until it is hashed take no place,
// also of a user who computes a lot. Other commands do.
func TestShortCommandsTakeNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, places, compute := heavyUser(t)
		r := newRig(t, o)
		c := r.dial(r.unix)
		value := strings.Repeat("x", 64<<10)
		for _, command := range [][]string{{"SET", "a", value}, {"GET", "a"}} {
			compute()
			reply := "+OK\r\n"
			if command[0] == "GET" {
				reply = "$65536\r\n" + value + "\r\n"
			}
			c.do(reply, command...)
			if n := places.Load(); n != 0 {
				t.Errorf("%s of 64 KiB has taken %d places", command[0], n)
			}
		}
		for _, command := range [][]string{{"DBSIZE"}, {"EXISTS", "a"}, {"SET", "a", value, "NX"}} {
			compute()
			c.send(encode(command...))
			if _, err := c.in.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if places.Load() == 0 {
				t.Errorf("%s of a user who computes a lot has taken no place", command[0])
			}
		}
	})
}
