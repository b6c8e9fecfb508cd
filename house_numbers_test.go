package kvstored_test

import (
	"fmt"
	"slices"
	"strings"
)

// measure is a table of the house in the making.
type measure struct {
	functionLines, fileLines []int
	complex                  int
	documented, exported     int
	manyMethods, manyFiles   int
	comments, vague          int
	drawings                 int
	readme                   int // words
}

// A type is wide in the comparison with other projects from here on.
const (
	comparedMethods = 60
	comparedFiles   = 10
)

// add counts a file that is no test.
func (m *measure) add(s source) {
	if s.tests {
		return
	}
	m.fileLines = append(m.fileLines, s.lines)
	for _, f := range functions(s) {
		m.functionLines = append(m.functionLines, f.lines)
		if f.complexity > maxComplexity {
			m.complex++
		}
	}
	documented, all := exported(s)
	m.documented += documented
	m.exported += all
	drawn := false
	for _, c := range comments(s) {
		m.comments++
		if vague.MatchString(c.text) {
			m.vague++
		}
		drawn = drawn || drawing.MatchString(c.text)
	}
	if drawn {
		m.drawings++
	}
}

func (m *measure) types(is span) {
	if is.methods >= comparedMethods {
		m.manyMethods++
	}
	if is.files >= comparedFiles {
		m.manyFiles++
	}
}

func (m *measure) vagueShare() float64 { return percent(m.vague, m.comments) }

func (m *measure) String() string {
	var b strings.Builder
	row := func(name, format string, values ...any) {
		fmt.Fprintf(&b, "%-44s "+format+"\n", append([]any{name}, values...)...)
	}
	slices.Sort(m.functionLines)
	slices.Sort(m.fileLines)
	row("function lines, median / p99 / max", "%d / %d / %d of %d", quantile(m.functionLines, 0.5), quantile(m.functionLines, 0.99), quantile(m.functionLines, 1), len(m.functionLines))
	row(fmt.Sprintf("functions over complexity %d", maxComplexity), "%.2f %% (%d)", percent(m.complex, len(m.functionLines)), m.complex)
	row("file lines, median / max", "%d / %d of %d", quantile(m.fileLines, 0.5), quantile(m.fileLines, 1), len(m.fileLines))
	row("exported names documented", "%.1f %% of %d", percent(m.documented, m.exported), m.exported)
	row(fmt.Sprintf("types with >= %d methods", comparedMethods), "%d", m.manyMethods)
	row(fmt.Sprintf("types spread over >= %d files", comparedFiles), "%d", m.manyFiles)
	row("comment lines with a vague actor", "%.2f %% (%d of %d)", m.vagueShare(), m.vague, m.comments)
	row("files with a drawing in a comment", "%d", m.drawings)
	row("README words", "%d", m.readme)
	return b.String()
}

// quantile of sorted numbers.
func quantile(sorted []int, q float64) int {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}

func percent(part, whole int) float64 { return 100 * float64(part) / float64(max(whole, 1)) }
