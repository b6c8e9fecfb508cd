package chart

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Size is that of a drawing, in units of which 11 are the height of the text.
// The page scales it to the width there is.
type Size struct{ Width, Height float64 }

const (
	digitWidth = 6.3 // of a character on average, in the fonts of Style
	lineHeight = 14
	gap        = 6 // between text and what it belongs to
	topMargin  = 8
	endMargin  = 16 // half of a label may stand out at the right
)

// canvas is a drawing that grows: the frame first, then the marks.
type canvas struct {
	b                        strings.Builder
	size                     Size
	left, right, top, bottom float64 // of what the axes enclose
}

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(&c.b, format, args...) }

// start leaves room for the axes' titles and the labels of y.
func (c *canvas) start(size Size, title, x, y string, yLabels []string) {
	c.size = size
	widest := 0
	for _, l := range yLabels {
		widest = max(widest, utf8.RuneCountInString(l))
	}
	c.left, c.right = float64(widest)*digitWidth+gap, size.Width-endMargin
	c.top, c.bottom = topMargin, size.Height-lineHeight-gap
	if y != "" {
		c.left += lineHeight + gap
	}
	if x != "" {
		c.bottom -= lineHeight
	}
	c.printf(`<svg class="chart" viewBox="0 0 %s %s" role="img" aria-label="%s" xmlns="http://www.w3.org/2000/svg">`+"\n",
		coordinate(size.Width), coordinate(size.Height), html.EscapeString(title))
	if y != "" {
		middle := coordinate((c.top + c.bottom) / 2)
		c.printf(`<text x="11" y="%s" text-anchor="middle" transform="rotate(-90 11 %s)">%s</text>`+"\n", middle, middle, html.EscapeString(y))
	}
	if x != "" {
		c.text((c.left+c.right)/2, size.Height-4, "middle", x)
	}
}

func (c *canvas) text(x, y float64, anchor, text string) {
	c.printf(`<text x="%s" y="%s" text-anchor="%s">%s</text>`+"\n", coordinate(x), coordinate(y), anchor, html.EscapeString(text))
}

// yAxis draws a grid line and a label for each tick.
func (c *canvas) yAxis(y scale, ticks []float64, labels []string) {
	for i, v := range ticks {
		at := y.at(v)
		c.printf(`<path class="grid" d="M%s %sH%s"/>`+"\n", coordinate(c.left), coordinate(at), coordinate(c.right))
		c.text(c.left-gap, at+4, "end", labels[i])
	}
}

// xLabel writes below the axis.
func (c *canvas) xLabel(x float64, label string) { c.text(x, c.bottom+lineHeight, "middle", label) }

func (c *canvas) end() string { return c.b.String() + "</svg>" }

// coordinate has a tenth of a unit, which no eye tells from less.
func coordinate(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "0"
	}
	return strconv.FormatFloat(math.Round(v*10)/10+0, 'f', -1, 64)
}

// scale maps the values of an axis to coordinates.
type scale struct {
	low, high float64 // values
	from, to  float64 // coordinates
	log       bool
}

// ok reports whether v is on the scale at all.
func (s *scale) ok(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (!s.log || v > 0)
}

func (s *scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		v, low, high = math.Log10(v), math.Log10(low), math.Log10(high)
	}
	return s.from + (v-low)/(high-low)*(s.to-s.from)
}
