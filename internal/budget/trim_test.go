package budget

import "testing"

// Memory that clients let go of bit by bit is given back, too, once.
func TestSlowFall(t *testing.T) {
	var b Budget
	b.mu.peak, b.mu.used = 64<<20, 64<<20
	for _, step := range []struct {
		used int64
		want bool
	}{
		{56 << 20, false},
		{40 << 20, false}, // less than half
		{26 << 20, true},
		{24 << 20, false}, // it was given back
		{20 << 20, false},
		{12 << 20, true},
		{6 << 20, false}, // too little
	} {
		b.mu.used = step.used
		if got := b.fallen(); got != step.want {
			t.Errorf("at %d MiB: %t", step.used>>20, got)
		}
	}
}
