package config

import (
	"strings"
	"testing"
)

// The wrong values that stop.flush is likeliest to be given.
func TestWrongStop(t *testing.T) {
	for value, want := range map[string]string{
		"60":      `"60" is not a duration; write a number with a unit, such as 25us, 10s or 5m`,
		"-1s":     "want 0s to 1h, not -1s",
		"24h":     "want 0s to 1h, not 24h",
		"1 min":   `"1 min" is not a duration; write a number with a unit, such as 25us, 10s or 5m`,
		"forever": `"forever" is not a duration; write a number with a unit, such as 25us, 10s or 5m`,
	} {
		_, err := loadText(t, "stop: {flush: "+value+"}\n")
		if got := errorText(err); !strings.HasSuffix(got, " stop.flush: "+want) {
			t.Errorf("%s: got %q, want %q", value, got, want)
		}
	}
	for _, value := range []string{"0s", "60s", "1h"} {
		if _, err := loadText(t, "stop: {flush: "+value+"}\n"); err != nil {
			t.Error(err)
		}
	}
}
