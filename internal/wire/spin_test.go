package wire

import (
	"testing"
	"time"
)

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
