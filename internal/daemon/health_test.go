package daemon

import (
	"errors"
	"testing"
	"time"
)

// TestHealth: what is wrong is told with its reason and since when, for as long as it is;
// a disk without room is, until it takes a chunk again.
func TestHealth(t *testing.T) {
	var h health
	at := func(clock string) time.Time {
		now, err := time.Parse("2006-01-02 15:04", clock)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	off := errors.New("the disk tier is off: no space left on device")
	for _, step := range []struct {
		clock         string
		trouble       error
		refused, puts uint64
		says          string
	}{
		{"2026-11-29 10:00", nil, 0, 3, ""},
		{"2026-11-29 10:02", off, 0, 3, "the disk tier is off: no space left on device, since 10:02"},
		{"2026-11-29 10:40", errors.Join(off, errors.New("the remote tier is off: x")), 0, 3, "the disk tier is off: no space left on device; the remote tier is off: x, since 10:02"},
		{"2026-11-29 23:00", off, 0, 3, "the disk tier is off: no space left on device, since 2026-11-29 10:02"},
		{"2026-11-29 23:01", nil, 0, 4, ""},
		{"2026-11-29 23:02", nil, 1, 5, errFull.Error() + ", since 23:02"},
		{"2026-11-29 23:03", nil, 1, 5, errFull.Error() + ", since 23:02"},
		{"2026-11-29 23:04", nil, 1, 6, ""},
	} {
		if got := h.look(at(step.clock), step.trouble, step.refused, step.puts); got != step.says {
			t.Errorf("%s: %q, want %q", step.clock, got, step.says)
		}
	}
}
