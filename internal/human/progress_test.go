package human

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgressWithoutTerminal: quick work prints nothing, and slow work a line each ten
// seconds, with the rate and the time left.
func TestProgressWithoutTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		says := func(want string) {
			t.Helper()
			if got := b.String(); got != want {
				t.Errorf("it printed %q, want %q", got, want)
			}
			b.Reset()
		}
		well := func() string { return "well" }
		p := NewProgress(&b, "playing", 20)
		for range 9 {
			p.Step(well)
		}
		says("")
		p.Begin("the next of them")
		says("playing: the next of them\n")
		time.Sleep(PlainInterval)
		p.Step(well)
		says("playing: 10 of 20, well, 10.0 s left\n")
		p.Step(well)
		p.End()
		says("")

		p = NewBytes(&b, "flush", 4<<20)
		time.Sleep(PlainInterval / 2)
		p.At(1<<20, 4<<20)
		says("")
		time.Sleep(PlainInterval / 2)
		p.At(2<<20, 8<<20) // more came meanwhile
		says("flush: 2.0 MiB of 8.0 MiB, 205 KiB/s, 30.0 s left\n")
		time.Sleep(PlainInterval)
		p.At(8<<20, 8<<20)
		says("flush: 8.0 MiB of 8.0 MiB, 410 KiB/s\n")
		p.End()
	})
}
