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
		{"uid_memory", "75", "want 0.5 to 1, not 75.0"},
		{"uid_memory", "0", "want 0.5 to 1, not 0.0"},
		{"uid_memory", "-0.5", "want 0.5 to 1, not -0.5"},
		{"uid_memory", "75%", `want a number, such as 0.75, not the string "75%"`},
		{"uid_memory", "512MiB", `want a number, such as 0.75, not the string "512MiB"`},
		{"chunks", "1000", "want 0, or 4096 to 1073741824, not 1000"},
		{"chunks", "-1", "want 0, or 4096 to 1073741824, not -1"},
		{"chunks", "1M", `want a whole number, not the string "1M"`},
		{"chunks", "1GiB", `want a whole number, not the string "1GiB"`},
		{"chunks", "auto", `want a whole number, not the string "auto"`},
		{"chunks", "4294967296", "want 0, or 4096 to 1073741824, not 4294967296"},
		{"stall", "30", `"30" is not a duration; write a number with a unit, such as 25us, 10s or 5m`},
		{"stall", "0s", "want 1s to 1h, not 0s"},
		{"stall", "30ms", "want 1s to 1h, not 30ms"},
		{"stall", "-30s", "want 1s to 1h, not -30s"},
		{"stall", "24h", "want 1s to 1h, not 24h"},
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
		{"uid_jobs", "0", "want 64 to 1048576, not 0"},
		{"uid_jobs", "-1", "want 64 to 1048576, not -1"},
		{"uid_jobs", "1", "want 64 to 1048576, not 1"},
		{"uid_jobs", "16k", `want a whole number, not the string "16k"`},
		{"uid_jobs", "1e4", `want a whole number, not the string "1e4"`},
	} {
		t.Run(tt.key+" "+tt.value, func(t *testing.T) {
			_, err := loadText(t, "limits: {"+tt.key+": "+tt.value+"}\n")
			if got := errorText(err); !strings.HasSuffix(got, " limits."+tt.key+": "+tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if _, err := loadText(t, "limits: {memory: 256MiB, uid_memory: 1, chunks: 4096, stall: 1s, connections: 64, uid_connections: 64, uid_jobs: 64}\n"); err != nil {
		t.Error(err)
	}
}
