package resp_test

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/resp"
)

// A value takes turns while it arrives, not only when it is stored: writers of large
// values share the processors with others by user.
func TestValuesTakeTurns(t *testing.T) {
	var places atomic.Int64
	gate := fair.NewGate(1, fair.Machine{Busy: func(change int) {
		if change > 0 {
			places.Add(1)
		}
	}})
	user := gate.NewUser()
	heavy := user.NewTurn() // of a user who computes for an hour, and is heavy since
	if err := heavy.Begin(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	heavy.Rest(time.Now().Add(time.Hour))
	r := newRig(t, resp.Options{Enter: func(net.Conn) (*fair.Turn, time.Duration, func(), error) {
		turn := user.NewTurn()
		return turn, 0, turn.Leave, nil
	}})
	c := r.dial(r.unix)
	set := encode("SET", "a", strings.Repeat("x", 1<<20))
	c.send(set[:len(set)/2])
	for end := time.Now().Add(patience); places.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("half of a value has arrived, and it took no turn")
		}
	}
	c.send(set[len(set)/2:])
	c.expect("+OK\r\n")
}
