package server

import (
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/base"
)

// TestRevocationsAreLoggedOnceASecond: each is counted, and told of once.
func TestRevocationsAreLoggedOnceASecond(t *testing.T) {
	var r revocations
	now := time.Unix(1000, 0)
	told, lines := 0, 0
	for i := range 1000 {
		if n, tell := r.Add(now.Add(time.Duration(i)*5*time.Millisecond), revocationQuiet, base.Increment); tell {
			told += n
			lines++
		}
	}
	if n, tell := r.Add(now.Add(time.Minute), revocationQuiet, base.Increment); tell {
		told += n
	}
	if lines != 5 || told != 1001 {
		t.Errorf("%d lines told of %d revocations; want 5 in 5 s, and 1,001 in all", lines, told)
	}
}
