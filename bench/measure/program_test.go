package measure_test

import (
	"strings"
	"testing"

	"github.com/kvstored/kvstored/bench/measure"
)

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
