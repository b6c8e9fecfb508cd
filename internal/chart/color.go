package chart

import (
	"fmt"
	"strings"
)

// Color is one of the palette. Its look follows the reader's choice
// of light or dark.
type Color uint8

// The palette. Each color but Pale has a contrast of at least 3 to the page in
// light and dark (WCAG 2.2, success criterion 1.4.11).
const (
	Blue Color = iota
	Sky
	Violet
	Orange
	Green
	Brown
	Cyan
	Yellow
	Pink
	Red
	Teal
	Slate
	Gray
	Pale // for what the others are seen against
	numColors
)

// palette is each color as it is in light and in dark.
var palette = [numColors][2]string{
	Blue:   {"#1d4ed8", "#5b8def"},
	Sky:    {"#0a94d6", "#7dd3fc"},
	Violet: {"#7c3aed", "#b69cff"},
	Orange: {"#dd5a07", "#fb923c"},
	Green:  {"#15803d", "#4ade80"},
	Brown:  {"#8a5a35", "#c8a27c"},
	Cyan:   {"#0891a8", "#22d3ee"},
	Yellow: {"#a87900", "#facc15"},
	Pink:   {"#db4c9d", "#f9a8d4"},
	Red:    {"#dc2626", "#f87171"},
	Teal:   {"#134e4a", "#2aa79b"},
	Slate:  {"#334155", "#cbd5e1"},
	Gray:   {"#7b8794", "#94a3b8"},
	Pale:   {"#dbe2ea", "#3b4a60"},
}

// The page below the charts, which the colors were chosen for.
const (
	lightPage = "#ffffff"
	darkPage  = "#131c2e"
)

// Swatch is the class of an element of that color, on a page that has Style.
func (c Color) Swatch() string { return fmt.Sprintf("swatch%d", c) }

// CSS is the color in a style sheet, on a page that has Style.
func (c Color) CSS() string { return fmt.Sprintf("var(--chart-%d)", c) }

// fill and stroke are classes of Style, for a page whose policy takes no style of an
// element.
func (c Color) fill() string   { return fmt.Sprintf("fill%d", c) }
func (c Color) stroke() string { return fmt.Sprintf("stroke%d", c) }

// Style is the style sheet that a page with charts has once.
func Style() string {
	var light, dark, classes strings.Builder
	for c, v := range palette {
		color := Color(c)
		fmt.Fprintf(&classes, ".chart .%s{fill:%s}.chart .%s{stroke:%s}.swatch%d{background:%s}\n", color.fill(), color.CSS(), color.stroke(), color.CSS(), c, color.CSS())
		fmt.Fprintf(&light, "--chart-%d:%s;", c, v[0])
		fmt.Fprintf(&dark, "--chart-%d:%s;", c, v[1])
	}
	return ":root{" + light.String() + "--chart-ink:#475569;--chart-grid:#e2e8f0;}\n" +
		"@media screen and (prefers-color-scheme:dark){:root{" + dark.String() + "--chart-ink:#a9b6c8;--chart-grid:#2b3950;}}\n" +
		".chart text{font:11px system-ui,-apple-system,\"Segoe UI\",Roboto,\"Liberation Sans\",sans-serif;fill:var(--chart-ink)}\n" +
		".chart .grid{stroke:var(--chart-grid);stroke-width:1}\n" +
		".chart .line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\n" +
		".chart .dashed{stroke-dasharray:6 4}\n" + classes.String()
}
