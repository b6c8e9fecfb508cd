package blob

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A name is told by all of its bytes: others may have the same sum. One that has left
// the shelter is not found, and what came later under its sum is.
func TestShelterTellsNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{}
		sh := &s.shelter
		push := func(name string, sum uint64) {
			s.push(sheltered{found: found{expires: int64(len(sh.mu.queue))}, sum: sum, name: []byte(name), until: time.Now().Add(time.Hour)})
		}
		seen := func(name string, sum uint64) string {
			v := sh.find([]byte(name), sum)
			if v == nil {
				return "-"
			}
			return fmt.Sprintf("%s %d", v.name, v.expires)
		}
		check := func(when, name string, sum uint64, want string) {
			t.Helper()
			if got := seen(name, sum); got != want {
				t.Errorf("%s: %s is %q, want %q", when, name, got, want)
			}
		}
		push("a", 1)
		push("b", 2)
		check("two names", "a", 1, "a 0")
		check("two names", "b", 2, "b 1")
		check("the sum of another", "b", 1, "-")
		push("c", 1)
		check("the same sum", "a", 1, "-")
		check("the same sum", "c", 1, "c 2")
		sh.pop()
		check("the older one has left", "c", 1, "c 2")
		push("b", 2)
		check("a younger value", "b", 2, "b 2")
		sh.pop()
		check("the older value has left", "b", 2, "b 2")
		sh.pop()
		check("it has left", "c", 1, "-")
		sh.pop()
		check("all have left", "b", 2, "-")
		if len(sh.mu.within) != 0 || len(sh.mu.queue) != 0 {
			t.Errorf("left: %v, %d", sh.mu.within, len(sh.mu.queue))
		}
		sh.mu.timer.Stop()
	})
}
