package report

import (
	"testing"

	"github.com/kvstored/kvstored/internal/simulate"
)

// TestCurvesDiffer: each policy has a color of its own, in any selection.
func TestCurvesDiffer(t *testing.T) {
	all := simulate.Policies()
	s := Simulation{Options: &simulate.Options{Policies: all}}
	color := make(map[string]any)
	for i, c := range s.curves() {
		for name, other := range color {
			if c.color == other {
				t.Errorf("%s and %s have one color", c.name, name)
			}
		}
		color[c.name] = c.color
		alone := Simulation{Options: &simulate.Options{Policies: all[i : i+1]}}
		if got := alone.curves()[0].color; got != c.color {
			t.Errorf("%s alone has another color", c.name)
		}
	}
}
