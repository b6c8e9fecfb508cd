package tier

import "testing"

func TestMatchModel(t *testing.T) {
	for _, tc := range []struct {
		pattern, model string
		want           bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "a", true}, {"a", "A", false}, {"a", "ab", false},
		{"*", "", true}, {"*", "org/model", true}, {"org/*", "org/model-8b", true}, {"org/*", "other/model", false},
		{"*8b", "model-8b", true}, {"*8b", "model-8b-chat", false}, {"*8b*", "model-8b-chat", true},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "a-b-b-c", true}, {"a*b*c", "acb", false},
		{"m?", "m1", true}, {"m?", "m", false}, {"m?", "mé", true}, {"?*", "", false}, {"*?", "x", true},
		{"*ab?d*", "xababcd", true}, {"**", "x", true}, {"a**b", "ab", true}, {"[a]", "a", false},
	} {
		if got := MatchModel(tc.pattern, tc.model); got != tc.want {
			t.Errorf("%q matches %q: %v", tc.pattern, tc.model, got)
		}
	}
}
