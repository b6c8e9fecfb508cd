package measure_test

import (
	"testing"

	"github.com/kvstored/kvstored/bench/measure"
)

func TestQuantile(t *testing.T) {
	sample := []int{40, 10, 30, 20}
	for _, c := range []struct {
		share float64
		want  int
	}{{0, 10}, {.25, 10}, {.26, 20}, {.5, 20}, {.99, 40}, {1, 40}} {
		if got := measure.Quantile(sample, c.share); got != c.want {
			t.Errorf("the quantile %v is %d, want %d", c.share, got, c.want)
		}
	}
	if sample[0] != 40 {
		t.Error("the sample was changed")
	}
}
