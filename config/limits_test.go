package config

import (
	"strings"
	"testing"
)

// The wrong values that each key of limits is likeliest to be given, and what
// Load says of them.
func TestWrongLimits(t *testing.T) {
	for _, tt := range []struct{ key, value, want string }{
		{"memory", "512", "want 0, or at least 256MiB, not 512"}, // the unit forgotten
		{"memory", "64MiB", "want 0, or at least 256MiB, not 64MiB"},
		{"memory", "0.5GiB", `"0.5GiB" is not a size; write a whole number with a unit, such as 512MiB, 4GiB or 64KB`},
		{"memory", "-1", `"-1" is not a size; write a whole number with a unit, such as 512MiB, 4GiB or 64KB`},
		{"memory", "auto", `"auto" is not a size; write a whole number with a unit, such as 512MiB, 4GiB or 64KB`},
		{"connections", "0", "want 64 to 65534, not 0"},
		{"connections", "10", "want 64 to 65534, not 10"},
		{"connections", "-1", "want 64 to 65534, not -1"},
		{"connections", "unlimited", `want a whole number, not the string "unlimited"`},
		{"connections", "4k", `want a whole number, not the string "4k"`},
		{"connections", "65535", "want 64 to 65534, not 65535"},
		{"uid_connections", "5000", "want 1 to the 4096 of limits.connections, or 0 for half of them, not 5000"},
		{"uid_connections", "-1", "want 0 or more, not -1"},
		{"uid_connections", "0.5", `want a whole number, not "0.5"`},
		{"uid_connections", "50%", `want a whole number, not the string "50%"`},
		{"uid_connections", "half", `want a whole number, not the string "half"`},
	} {
		t.Run(tt.key+" "+tt.value, func(t *testing.T) {
			_, err := loadText(t, "limits: {"+tt.key+": "+tt.value+"}\n")
			if got := errorText(err); !strings.HasSuffix(got, " limits."+tt.key+": "+tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if _, err := loadText(t, "limits: {memory: 256MiB, connections: 64, uid_connections: 64}\n"); err != nil {
		t.Error(err)
	}
}
