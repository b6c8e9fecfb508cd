package human

import (
	"fmt"
	"io"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// Count is n with separators between thousands.
func Count[N int | int64 | uint32 | uint64 | float64](n N) string { return humanize.Comma(int64(n)) }

// Bytes is a size in binary units; a negative one is zero.
func Bytes[N int | int64 | uint64 | float64](n N) string { return humanize.IBytes(uint64(max(n, 0))) }

// Rate is GB/s in decimal units, as memory and disks are rated.
func Rate(gb float64) string { return humanize.Bytes(uint64(gb*1e9)) + "/s" }

// Percent is the share of part in whole; "-" of nothing.
func Percent(part, whole float64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*part/whole)
}

// Micros is a duration given in microseconds, with about three digits.
func Micros(us float64) string {
	switch d := time.Duration(us * float64(time.Microsecond)); {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.1f us", us)
	case d < 10*time.Millisecond:
		return Count(us) + " us"
	case d < 10*time.Second:
		return Count(us/1e3) + " ms"
	default:
		return fmt.Sprintf("%.0f s", us/1e6)
	}
}

// Duration is a length of time, in the unit that it is long in.
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	default:
		return d.Round(time.Second).String()
	}
}

// Seconds is Duration of a number of seconds.
func Seconds(s float64) string { return Duration(time.Duration(s * float64(time.Second))) }

// Plural is n and the noun that fits it.
func Plural[N int | int64 | uint32 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Count(n) + " " + noun + "s"
}

// Table prints rows with aligned columns: the first to the left, the others to
// the right. A row of one cell belongs to the one above it, and to no column.
type Table struct{ rows [][]string }

// Row adds one.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Print prints all, each line behind indent.
func (t *Table) Print(w io.Writer, indent string) {
	var widths []int
	for _, r := range t.rows {
		if len(r) == 1 {
			continue
		}
		for i, c := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range t.rows {
		if len(r) == 1 {
			fmt.Fprintln(w, indent+r[0])
			continue
		}
		line := indent
		for i, c := range r {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if i == 0 {
				line += c + pad
			} else {
				line += "  " + pad + c
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// Columns is the width of texts for people, where that can be kept.
const Columns = 80

// List prints names, each with a text that is broken at spaces.
type List struct{ rows [][2]string }

// Row adds a name and its text.
func (l *List) Row(name, format string, args ...any) {
	l.rows = append(l.rows, [2]string{name, fmt.Sprintf(format, args...)})
}

// Print prints all, each line behind indent.
func (l *List) Print(w io.Writer, indent string) {
	width := 0
	for _, r := range l.rows {
		width = max(width, utf8.RuneCountInString(r[0]))
	}
	for _, r := range l.rows {
		name := r[0]
		for _, line := range Wrapped(r[1], Columns-len(indent)-width-2) {
			fmt.Fprintf(w, "%s%-*s  %s\n", indent, width, name, line)
			name = ""
		}
	}
}

// Wrapped is a text in lines of at most so many letters, broken at spaces, but for those before
// a percent sign.
func Wrapped(text string, width int) (out []string) {
	line := ""
	for _, word := range strings.Fields(strings.ReplaceAll(text, " %", "\x00%")) {
		word = strings.ReplaceAll(word, "\x00", " ")
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			out, line = append(out, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(out, line)
}

// VersionNumber is the version of this source (semver.org). A release changes it,
// the line of the Python client that the test names, and the changelog.
const VersionNumber = "v0.1.0"

// Version is what this program was built from.
type Version struct {
	Version  string `json:"version"`            // VersionNumber
	Commit   string `json:"commit,omitempty"`   // 12 digits or more; "" where the build has no record of it
	Modified bool   `json:"modified,omitempty"` // files differed from the commit
	Go       string `json:"go"`                 // version of the toolchain
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// GetVersion reads the build's record of this program.
func GetVersion() Version {
	record, _ := debug.ReadBuildInfo() // nil without one
	return infoOf(record)
}

// pseudo is the end of a module version that names a commit, as the go command
// makes it for `go install module@commit` (go.dev/ref/mod#pseudo-versions).
var pseudo = regexp.MustCompile(`[.-]\d{14}-([0-9a-f]{12})(\+incompatible)?$`)

func infoOf(record *debug.BuildInfo) Version {
	info := Version{Version: VersionNumber, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if record == nil {
		return info
	}
	for _, s := range record.Settings { // of a build in a checkout
		switch s.Key {
		case "vcs.revision":
			info.Commit = s.Value
		case "vcs.modified":
			info.Modified = s.Value == "true"
		}
	}
	if m := pseudo.FindStringSubmatch(record.Main.Version); info.Commit == "" && m != nil {
		info.Commit = m[1]
	}
	return info
}

// VersionText is the version with the commit as build metadata, such as
// v0.1.0+1f0c2a9b77d3 or, with files that differ from it,
// v0.1.0+1f0c2a9b77d3.modified.
func (i Version) String() string {
	if i.Commit == "" {
		return i.Version
	}
	s := i.Version + "+" + i.Commit[:min(len(i.Commit), 12)]
	if i.Modified {
		s += ".modified"
	}
	return s
}

// VersionText is Get().String().
func VersionText() string { return GetVersion().String() }
