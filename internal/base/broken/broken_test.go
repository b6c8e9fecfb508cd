package broken_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/base/broken"
)

// A test panics; the daemon counts, and logs ever more rarely.
func TestReport(t *testing.T) {
	func() {
		defer func() {
			if got := recover(); got != "entry 7 is held twice" {
				t.Errorf("recovered %v", got)
			}
		}()
		broken.Report("entry %d is held twice", 7)
	}()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(broken.Survive())
		var logged bytes.Buffer
		broken.LogTo(zerolog.New(zerolog.SyncWriter(&logged)))
		defer broken.LogTo(zerolog.Nop())
		before := broken.Count()
		for range 100 {
			broken.Report("entry %d is held twice", 7)
			synctest.Wait()
		}
		if n := broken.Count() - before; n != 100 || broken.Err() == nil {
			t.Errorf("%d are counted: %v", n, broken.Err())
		}
		if n := strings.Count(logged.String(), "entry 7 is held twice"); n != 7 {
			t.Errorf("%d are logged:\n%s", n, &logged)
		}
	})
}
