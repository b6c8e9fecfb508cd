package base

import "strings"

// Glob reports whether all of a name matches the pattern.
func Glob(pattern, name string) bool { return match(pattern, name, any1) }

// GlobCovers reports that every name that b matches is matched by a too. False may
// also mean that this was not seen: "?*" covers "*?", and is not found to.
func GlobCovers(a, b string) bool { return match(a, b, notStar) }

// any1 is what a ? stands for in a name.
func any1(rune) bool { return true }

// notStar is what a ? stands for in a pattern: one character in each name that it
// matches. A * of the pattern may be none or several, which takes a *.
func notStar(c rune) bool { return c != '*' }

// match compares text with the pattern. A ? is one character that one allows, a *
// any run of any characters. A * of the pattern is the first character of text
// at which the literal part behind it fits: a later one is never needed.
func match(pattern, text string, one func(rune) bool) bool {
	head, rest, star := strings.Cut(pattern, "*")
	h, m := []rune(head), []rune(text)
	if len(m) < len(h) || !matchHead(h, m, one) {
		return false
	}
	m = m[len(h):]
	if !star {
		return len(m) == 0
	}
	for parts := strings.Split(rest, "*"); ; parts = parts[1:] {
		p := []rune(parts[0])
		if len(parts) == 1 { // the end of the pattern is the end of the text
			return len(m) >= len(p) && matchHead(p, m[len(m)-len(p):], one)
		}
		for len(m) >= len(p) && !matchHead(p, m, one) {
			m = m[1:]
		}
		if len(m) < len(p) {
			return false
		}
		m = m[len(p):]
	}
}

// matchHead compares p with as much of m, which is as long or longer.
func matchHead(p, m []rune, one func(rune) bool) bool {
	for i, c := range p {
		if c != m[i] && (c != '?' || !one(m[i])) {
			return false
		}
	}
	return true
}
