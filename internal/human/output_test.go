package human

import (
	"slices"
	"testing"
)

func TestWrapped(t *testing.T) {
	for _, tc := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 5, []string{""}},
		{"one two  three", 7, []string{"one two", "three"}},
		{"longer-than-that so", 5, []string{"longer-than-that", "so"}},
		{"read 12 % of all", 7, []string{"read", "12 % of", "all"}},
		{"wrote (0.2 % of it)", 10, []string{"wrote", "(0.2 % of", "it)"}},
	} {
		if got := Wrapped(tc.text, tc.width); !slices.Equal(got, tc.want) {
			t.Errorf("%q: %q, want %q", tc.text, got, tc.want)
		}
	}
}
