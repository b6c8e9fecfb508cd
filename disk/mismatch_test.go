package disk

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/logtest"
)

// A device that returns wrong bytes again and again has one line in the log at
// once, and then one a minute, with the number of payloads since.
func TestMismatchesAreSummed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Book
		wrong := mismatches{log: zerolog.New(&log)}
		lines := func(want ...string) {
			t.Helper()
			got := strings.Split(strings.TrimSpace(log.String()), "\n")
			if len(got) != len(want) {
				t.Fatalf("%d lines, want %d:\n%s", len(got), len(want), log.String())
			}
			for i := range want {
				if !strings.Contains(got[i], want[i]) || !strings.Contains(got[i], "checksums") {
					t.Errorf("line %d is %s, want %s", i, got[i], want[i])
				}
			}
		}
		for i := range 20 {
			wrong.add(keyOf(i), found{})
		}
		wrong.report() // the maintenance, each second
		lines(`"payloads":1,`)
		time.Sleep(mismatchEvery)
		wrong.report()
		wrong.report()
		lines(`"payloads":1,`, `"payloads":19,`)
		time.Sleep(2 * mismatchEvery)
		wrong.report()
		wrong.add(keyOf(20), found{})
		lines(`"payloads":1,`, `"payloads":19,`, `"payloads":1,`)
	})
}
