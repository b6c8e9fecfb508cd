package main

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The colors of the report: one for each tier, nearest first, then for what
// the engine computes.
var (
	tierColors = [...]color.NRGBA{rgb(0x1d4ed8), rgb(0x38bdf8), rgb(0x7c3aed), rgb(0xe2e8f0)}
	inkColor   = rgb(0x475569)
	gridColor  = rgb(0xe2e8f0)
)

func rgb(hex uint32) color.NRGBA {
	return color.NRGBA{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex), A: 0xff}
}

// css is a color in a style sheet.
func css(c color.NRGBA) template.CSS {
	return template.CSS(fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B))
}

// newPlot is an empty plot in the style of the report: no frame, horizontal
// grid lines only, small print.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	p.X.Label.Text, p.Y.Label.Text = x, y
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		for _, st := range []*text.Style{&a.Label.TextStyle, &a.Tick.Label} {
			st.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 11}
			st.Color = inkColor
		}
		a.Label.Padding = 6
		a.Tick.LineStyle.Width = 0
		a.Tick.Length = 4
		a.LineStyle.Width = 0
	}
	p.X.Padding, p.Y.Padding = 4, 0
	p.Y.Tick.Marker = plot.TickerFunc(roundTicks)
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color, grid.Horizontal.Width = gridColor, 0.75
	p.Add(grid)
	return p
}

// bars is a chart with a bar for each share, with a segment for each tier and
// one for what was computed.
type bars struct {
	shares   []share
	labels   []string // of the bars
	x, y     string   // labels of the axes
	unit     float64  // of the tokens, or
	relative bool     // all bars are 100 % high
	width    vg.Length
	size     chartSize
}

func (c bars) draw() (template.HTML, error) {
	p := newPlot(c.x, c.y)
	var below *plotter.BarChart
	for i := range tierColors {
		values := make(plotter.Values, len(c.shares))
		for j, s := range c.shares {
			unit := c.unit
			if c.relative {
				unit = max(1, s.all()) / 100
			}
			values[j] = s.tokens[i] / unit
		}
		if slices.Max(values) == 0 {
			continue
		}
		bars, err := plotter.NewBarChart(values, c.width)
		if err != nil {
			return "", fmt.Errorf("chart: %w", err)
		}
		bars.Color, bars.LineStyle.Width = tierColors[i], 0
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
	}
	p.NominalX(c.labels...)
	p.X.Padding, p.X.Tick.LineStyle.Width = 4, 0 // NominalX has its own idea
	p.X.Min, p.X.Max = -0.7, float64(len(c.shares))-0.3
	p.Y.Min = 0
	if c.relative {
		p.Y.Max = 100
	}
	return svg(p, c.size)
}

// cdfPoints bounds a line: more than there are pixels says nothing.
const cdfPoints = 500

// cdf draws which share of the durations is at most how long, on a
// logarithmic scale.
func cdf(sets [][]time.Duration, colors []color.NRGBA, size chartSize) (template.HTML, error) {
	p := newPlot("", "% of prompts")
	low, high := math.Inf(1), 0.0
	for i, set := range sets {
		if len(set) == 0 {
			continue
		}
		slices.Sort(set)
		points := make(plotter.XYs, min(len(set), cdfPoints))
		for j := range points {
			at := (j + 1) * len(set) / len(points)
			x := max(float64(set[at-1])/float64(time.Microsecond), 1)
			points[j] = plotter.XY{X: x, Y: 100 * float64(at) / float64(len(set))}
			low, high = min(low, x), max(high, x)
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return "", fmt.Errorf("chart: %w", err)
		}
		line.StepStyle = plotter.PostStep
		line.LineStyle = draw.LineStyle{Color: colors[i], Width: 2}
		p.Add(line)
	}
	if high == 0 {
		return "", nil
	}
	p.X.Min = math.Pow(10, math.Floor(math.Log10(low)))
	p.X.Max = math.Pow(10, math.Ceil(math.Log10(high*1.01)))
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = plot.TickerFunc(decades)
	p.Y.Min, p.Y.Max = 0, 100
	return svg(p, size)
}

// roundTicks are about five round numbers, without decimals they do not need.
func roundTicks(low, high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/2)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if (high-low)/(step*m) <= 5 {
			step *= m
			break
		}
	}
	var out []plot.Tick
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		out = append(out, plot.Tick{Value: v, Label: humanize.Commaf(v)})
	}
	return out
}

// decades marks 1 us, 10 us and so on.
func decades(low, high float64) (out []plot.Tick) {
	for x := low; x <= high*1.01; x *= 10 {
		label := fmt.Sprintf("%.0f s", x/1e6)
		switch {
		case x < 999:
			label = fmt.Sprintf("%.0f us", x)
		case x < 999e3:
			label = fmt.Sprintf("%.0f ms", x/1e3)
		}
		out = append(out, plot.Tick{Value: x, Label: strings.Replace(label, "us", "µs", 1)})
	}
	return out
}

// chartSize is in units of which 11 are the height of the print.
type chartSize struct{ width, height vg.Length }

var (
	halfWide  = chartSize{420, 220}
	wholeWide = chartSize{900, 260}
)

// svg draws p as an element that stands in a page.
func svg(p *plot.Plot, s chartSize) (template.HTML, error) {
	c := vgsvg.New(s.width, s.height)
	p.Draw(draw.Crop(draw.New(c), 4, -16, 2, -8)) // half of a label may stand out
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", fmt.Errorf("chart: %w", err)
	}
	_, element, found := strings.Cut(b.String(), "<svg")
	if !found {
		return "", fmt.Errorf("chart: the drawing is not SVG: %.80s", b.String())
	}
	// The drawing was laid out with metrics that these fonts share.
	element = strings.ReplaceAll(element, "font-family:Liberation Sans", "font-family:Liberation Sans,Arial,Helvetica,sans-serif")
	return template.HTML("<svg" + element), nil
}
