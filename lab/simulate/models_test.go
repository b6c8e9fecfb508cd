package simulate

import (
	"strings"
	"testing"
)

// Each preset can be read, and says where its sizes are from.
func TestModels(t *testing.T) {
	if len(Models()) != 8 {
		t.Errorf("there are %v", Models())
	}
	for _, name := range Models() {
		m, err := ModelNamed(name)
		if err != nil || m.Model == "" || m.Source == "" || len(m.Groups) < 2 {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

func TestWrongModels(t *testing.T) {
	full := "groups:\n- {kind: full, bytes_per_token: 1KiB}\n"
	for text, want := range map[string]string{
		"":                                 "none is full",
		"groups: 3":                        "want a list",
		full + "- {kind: sliding}":         `m:3:3: groups[1]: kind "sliding"`,
		full + "- {kind: full}":            "bytes_per_token 0",
		full + "- {kind: full, window: 3}": "bytes_per_token 0",
		full + "- {kind: state}":           "state_bytes 0",
		full + "- {kind: state, state_bytes: 1MiB}":                                      "state_every 0",
		full + "- {kind: window, bytes_per_token: 1}":                                    "window 0",
		full + "- {kind: local, bytes_per_token: 1, window: 9, state_every: 1}":          "are of state",
		full + "- {kind: window, bytes_per_token: 65MiB, window: 9}":                     "bytes_per_token 65MiB",
		full + "- {kind: state, state_bytes: 17GiB, state_every: 1}":                     "state_bytes 17GiB",
		full + "- {kind: window, bytes_per_token: 1, windows: 9}":                        "unknown key",
		"groups:\n- {kind: window, bytes_per_token: 1, window: 9}":                       "none is full",
		full + strings.Repeat("- {kind: full, bytes_per_token: 1KiB}\n", maxModelGroups): "65 groups",
	} {
		if _, err := parseModel("m", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}
