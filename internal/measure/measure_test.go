package measure_test

import (
	"strings"
	"testing"

	"github.com/kvstored/kvstored/internal/measure"
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

// TestProgramFails: a program that ends at once is told of, and not waited for.
func TestProgramFails(t *testing.T) {
	program, err := measure.Program(t.Context(), "/bin/false", t.TempDir())
	if err != nil || program != "/bin/false" {
		t.Fatal(program, err)
	}
	d, err := measure.Start(program, t.TempDir()+"/s", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Dial(t.Context(), measure.Options()); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("the error is %v, want one that says that the daemon has ended", err)
	}
	for range 2 {
		if err := d.Close(); err == nil {
			t.Error("a daemon that failed is closed without an error")
		}
	}
}
