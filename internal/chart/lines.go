package chart

import (
	"fmt"
	"html"
	"math"
	"strings"
	"unicode/utf8"
)

// Lines is a chart of lines.
type Lines struct {
	Title string // for readers who listen
	X, Y  Axis   // X is logarithmic unless it says otherwise, Y linear
	Lines []Line // the first ends up above the others
	Size  Size
}

// Axis is one of a chart's two.
type Axis struct {
	Title     string
	Low, High float64              // 0, 0 = what the points take, in round numbers
	Format    func(float64) string // of a tick; nil = Number
	Linear    bool                 // of X; it wants Low and High
	Ticks     []float64            // of X; nil = round numbers
	Bytes     bool                 // of Y: numbers are round in binary units
}

// Line is a series of points, by X.
type Line struct {
	Name   string
	Color  Color
	Points []Point
	Dashed bool
	Steps  bool // holds each value until the next point, and the last to the end
	Dots   bool // shows the points
}

// Point is a point of a line.
type Point struct{ X, Y float64 }

// SVG draws the chart.
func (l *Lines) SVG() string {
	x, y := l.X.scale(l.xs(), !l.X.Linear), l.Y.scale(l.ys(), false)
	ticks := linearTicks(y.low, y.high, l.Y.round())
	labels := format(ticks, l.Y.format)
	var c canvas
	c.start(l.Size, l.Title, l.X.Title, l.Y.Title, labels)
	x.from, x.to, y.from, y.to = c.left+gap, c.right, c.bottom, c.top
	c.yAxis(y, ticks, labels)
	l.X.draw(&c, x)
	for i := len(l.Lines) - 1; i >= 0; i-- {
		l.Lines[i].draw(&c, x, y, &l.X, &l.Y)
	}
	return c.end()
}

func (l *Lines) xs() (out []float64) {
	for _, line := range l.Lines {
		for _, p := range line.Points {
			out = append(out, p.X)
		}
	}
	return out
}

func (l *Lines) ys() (out []float64) {
	for _, line := range l.Lines {
		for _, p := range line.Points {
			out = append(out, p.Y)
		}
	}
	return out
}

// round is how the step between two ticks is rounded up.
func (a *Axis) round() func(float64) float64 {
	if a.Bytes {
		return roundUpBytes
	}
	return roundUp
}

func (a *Axis) format(v float64) string {
	if a.Format != nil {
		return a.Format(v)
	}
	return Number(v)
}

// scale covers all values. A linear one begins at 0; a logarithmic one leaves a
// little room at both ends.
func (a *Axis) scale(values []float64, log bool) scale {
	s := scale{low: a.Low, high: a.High, log: log}
	if a.High > a.Low {
		return s
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if s.ok(v) {
			low, high = min(low, v), max(high, v)
		}
	}
	switch {
	case log && high < low:
		s.low, s.high = 1, 10
	case log:
		s.low, s.high = low/1.06, high*1.06
	case high <= 0:
		s.low, s.high = 0, 1
	default:
		step := a.round()(high / mostTicks)
		s.low, s.high = 0, math.Ceil(high/step-1e-9)*step
	}
	return s
}

// draw labels an x axis, as finely as the labels have room.
func (a *Axis) draw(c *canvas, x scale) {
	ticks := a.Ticks
	switch {
	case ticks != nil:
	case x.log:
		ticks = a.logTicks(x)
	default:
		ticks = linearTicks(x.low, x.high, roundUp)
	}
	for n := 2; !fit(x, ticks, format(ticks, a.format)); n++ {
		ticks = everyNth(ticks, n)
	}
	for i, label := range format(ticks, a.format) {
		at := x.at(ticks[i])
		c.printf(`<path class="grid" d="M%s %sv4"/>`+"\n", coordinate(at), coordinate(c.bottom))
		c.xLabel(at, label)
	}
}

// logTicks are the finest round numbers whose labels have room.
func (a *Axis) logTicks(x scale) []float64 {
	ticks := []float64{math.Sqrt(x.low * x.high)} // where no round number is between them
	for _, parts := range decadeParts {
		t := logTicks(x.low, x.high, parts)
		if len(t) == 0 {
			break
		}
		if ticks = t; len(t) <= mostLogTicks && fit(x, t, format(t, a.format)) {
			break
		}
	}
	return ticks
}

// everyNth keeps the first of each n values.
func everyNth(values []float64, n int) (out []float64) {
	for i := 0; i < len(values); i += n {
		out = append(out, values[i])
	}
	return out
}

// fit reports whether labels in the middle of their ticks stay apart.
func fit(x scale, ticks []float64, labels []string) bool {
	end := math.Inf(-1)
	for i, v := range ticks {
		half := float64(utf8.RuneCountInString(labels[i])) * digitWidth / 2
		if x.at(v)-half < end+digitWidth {
			return false
		}
		end = x.at(v) + half
	}
	return true
}

// draw draws the line and its dots; pointing at a dot tells its numbers.
func (l *Line) draw(c *canvas, x, y scale, xAxis, yAxis *Axis) {
	var path strings.Builder
	var points []Point
	for _, p := range l.Points {
		if x.ok(p.X) && y.ok(p.Y) {
			points = append(points, p)
		}
	}
	if len(points) == 0 {
		return
	}
	for i, p := range points {
		px, py := coordinate(x.at(p.X)), coordinate(y.at(p.Y))
		switch {
		case i == 0 && l.Steps:
			fmt.Fprintf(&path, "M%s %sV%s", px, coordinate(y.from), py)
		case i == 0:
			fmt.Fprintf(&path, "M%s %s", px, py)
		case l.Steps:
			fmt.Fprintf(&path, "H%sV%s", px, py)
		default:
			fmt.Fprintf(&path, "L%s %s", px, py)
		}
	}
	if l.Steps {
		fmt.Fprintf(&path, "H%s", coordinate(x.to))
	}
	dashes := ""
	if l.Dashed {
		dashes = " dashed"
	}
	c.printf(`<path class="line %s%s" d="%s"><title>%s</title></path>`+"\n", l.Color.stroke(), dashes, path.String(), html.EscapeString(l.Name))
	if !l.Dots {
		return
	}
	for _, p := range points {
		text := fmt.Sprintf("%s: %s at %s", l.Name, yAxis.format(math.Round(p.Y*10)/10), xAxis.format(p.X))
		c.printf(`<circle cx="%s" cy="%s" r="2.6" class="%s"><title>%s</title></circle>`+"\n",
			coordinate(x.at(p.X)), coordinate(y.at(p.Y)), l.Color.fill(), html.EscapeString(text))
	}
}
