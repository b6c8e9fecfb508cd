package base

import (
	"math/rand/v2"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, tc := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "a", true}, {"a", "A", false}, {"a", "ab", false},
		{"*", "", true}, {"*", "org/model", true}, {"org/*", "org/model-8b", true}, {"org/*", "other/model", false},
		{"*8b", "model-8b", true}, {"*8b", "model-8b-chat", false}, {"*8b*", "model-8b-chat", true},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "a-b-b-c", true}, {"a*b*c", "acb", false},
		{"m?", "m1", true}, {"m?", "m", false}, {"m?", "mé", true}, {"?*", "", false}, {"*?", "x", true},
		{"*ab?d*", "xababcd", true}, {"**", "x", true}, {"a**b", "ab", true}, {"[a]", "a", false},
		{"a?", "a*", true}, {"a*", "a?", true}, {"a", "?", false}, // a name may have the characters of patterns
	} {
		if got := Glob(tc.pattern, tc.name); got != tc.want {
			t.Errorf("%q matches %q: %v", tc.pattern, tc.name, got)
		}
	}
}

func TestCovers(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"*", "*", true}, {"*", "llama-*", true}, {"llama-*", "*", false}, {"llama-*", "llama-3-*", true},
		{"llama-3-*", "llama-*", false}, {"a?", "a*", false}, {"a*", "a?", true}, {"a?", "ab", true}, {"ab", "a?", false},
		{"?", "?", true}, {"*8b", "llama-*8b", true}, {"*a*b*", "*ab*", true}, {"*ab*", "*a*b*", false}, {"**", "*", true},
	} {
		if got := GlobCovers(tc.a, tc.b); got != tc.want {
			t.Errorf("%q covers %q: %v", tc.a, tc.b, got)
		}
	}
}

// GlobCovers is never wrong about any name: each name that b matches is matched by
// an a that covers b. Among short patterns it finds some such pairs, or the test
// would show nothing.
func TestCoversHolds(t *testing.T) {
	names := []string{""}
	for n := 0; n < len(names) && len(names) < 400; n++ {
		for _, c := range "ab*" {
			names = append(names, names[n]+string(c))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	pattern := func() (p string) {
		for range random.IntN(5) {
			p += string("ab?*"[random.IntN(4)])
		}
		return p
	}
	covered := 0
	for range 20_000 {
		a, b := pattern(), pattern()
		if !GlobCovers(a, b) {
			continue
		}
		covered++
		for _, name := range names {
			if Glob(b, name) && !Glob(a, name) {
				t.Fatalf("%q is said to cover %q, which matches %q", a, b, name)
			}
		}
	}
	if covered < 1000 {
		t.Errorf("only %d of the patterns covered another", covered)
	}
}
