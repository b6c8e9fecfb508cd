package daemon

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWithin: the end waits for each of its parts no longer than that may take.
func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine := errors.New("mine")
		if err := within(time.Second, "x", func() error { return mine }); !errors.Is(err, mine) {
			t.Errorf("its own error is %v", err)
		}
		hang, begun := make(chan struct{}), time.Now()
		err := within(3*time.Second, "closing", func() error { <-hang; return nil })
		if took := time.Since(begun); !errors.Is(err, errTimeout) || !strings.Contains(err.Error(), "closing") || took != 3*time.Second {
			t.Errorf("what hangs is left after %v with %v", took, err)
		}
		close(hang)
	})
}
