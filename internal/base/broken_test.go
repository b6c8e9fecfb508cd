package base_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/base"
)

// A test panics; the daemon counts, and logs ever more rarely.
func TestReport(t *testing.T) {
	func() {
		defer func() {
			if got := recover(); got != "entry 7 is held twice" {
				t.Errorf("recovered %v", got)
			}
		}()
		base.Broken("entry %d is held twice", 7)
	}()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(base.SurviveBroken())
		var logged bytes.Buffer
		base.LogBroken(zerolog.New(zerolog.SyncWriter(&logged)))
		defer base.LogBroken(zerolog.Nop())
		before := base.BrokenCount()
		for range 100 {
			base.Broken("entry %d is held twice", 7)
			synctest.Wait()
		}
		if n := base.BrokenCount() - before; n != 100 || base.BrokenErr() == nil {
			t.Errorf("%d are counted: %v", n, base.BrokenErr())
		}
		if n := strings.Count(logged.String(), "entry 7 is held twice"); n != 7 {
			t.Errorf("%d are logged:\n%s", n, &logged)
		}
	})
}
