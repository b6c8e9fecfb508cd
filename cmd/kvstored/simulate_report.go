package main

import (
	"cmp"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/kvstored/kvstored/internal/simulate"
)

// simulation is what a report of one tells.
type simulation struct {
	flags   *replayFlags
	options *simulate.Options
	trace   *simulate.Trace
	rows    []simulate.Row // by policy, then capacity
	took    time.Duration
}

// curveColors are for the policies in the order of simulate.Policies, so that
// each has its own in every report; the bounds are gray.
var curveColors = []color.NRGBA{
	rgb(0x1d4ed8), rgb(0xea580c), rgb(0x16a34a), rgb(0x94653f), rgb(0x06b6d4),
	rgb(0xeab308), rgb(0x7c3aed), rgb(0xf472b6), rgb(0xdc2626), rgb(0x134e4a),
}

var boundColors = map[string]color.NRGBA{simulate.Belady: rgb(0x334155), simulate.Infinite: rgb(0x94a3b8)}

var boundLabels = map[string]string{
	simulate.Belady:   "belady: fewest blocks missed, knowing the future",
	simulate.Infinite: "infinite: everything kept",
}

// beladyNote is why a policy may be above the dashed curve.
const beladyNote = "Belady misses the fewest blocks of all that store each block; tokens are hit by whole prefixes, so a policy that keeps these together, or does not store all, as tenure, can be a little above it."

// curve is one policy's rows, by capacity.
type curve struct {
	name  string
	color color.NRGBA
	rows  []simulate.Row
	bound bool
}

func (s *simulation) curves() (out []curve) {
	for i, name := range s.options.Policies {
		n := len(s.options.Capacities)
		c := curve{name: name, rows: slices.Clone(s.rows[i*n : (i+1)*n])}
		slices.SortFunc(c.rows, func(a, b simulate.Row) int { return a.CapacityBlocks - b.CapacityBlocks })
		if c.color, c.bound = boundColors[name]; !c.bound {
			c.color = curveColors[slices.Index(simulate.Policies(), name)]
		}
		out = append(out, c)
	}
	return out
}

func (s *simulation) report() (*report, error) {
	curves := s.curves()
	drawing, err := s.draw(curves)
	if err != nil {
		return nil, err
	}
	what := "A block may be evicted whatever stands on it, so that the numbers compare with published simulations."
	if s.options.Tree {
		what = "Only blocks that no other one stands on are evicted, as in the daemon."
	}
	note := "Share of the prompt tokens that need not be computed, by the size of the cache."
	if s.flags.simulate.blockBytes > 0 {
		note += fmt.Sprintf(" A block is %s.", size(s.flags.simulate.blockBytes))
	}
	c := chart{Title: "Hit rate", Note: note + " " + beladyNote, SVG: drawing, Wide: true}
	for _, cv := range curves {
		c.Legend = append(c.Legend, legend{css(cv.color), cmp.Or(boundLabels[cv.name], cv.name)})
	}
	first := s.rows[0]
	return &report{
		Title:     "Simulation of " + filepath.Base(s.flags.trace),
		Subtitle:  fmt.Sprintf("%s in blocks of %d tokens. %s", plural(first.Requests, "request"), s.flags.blockTokens, what),
		Simulated: true,
		Headlines: s.headlines(curves),
		Charts:    []chart{c},
		Tables:    []reportTable{s.table(curves)},
		Facts: []fact{
			{"Prompts", fmt.Sprintf("%s, %s tokens", comma(first.Requests), comma(first.TotalPromptTokens))},
			{"Blocks", fmt.Sprintf("%s, %s accesses", comma(s.trace.Distinct()), comma(first.BlockAccesses))},
			{"Skipped", plural(s.trace.Skipped, "line")},
			{"Took", span(s.took)},
		},
	}, nil
}

// headlines are the policy that hits most at each of a few capacities.
func (s *simulation) headlines(curves []curve) []headline {
	n := len(curves[0].rows)
	var out []headline
	for _, at := range slices.Compact([]int{n / 4, n / 2, 3 * n / 4, n - 1}) {
		if best := s.best(curves, at); best.Policy != "" {
			out = append(out, headline{
				percent(float64(best.TotalHitTokens), float64(best.TotalPromptTokens)),
				fmt.Sprintf("hit by %s with %s", best.Policy, s.capacity(best.CapacityBlocks)),
			})
		}
	}
	return out
}

// best is the row of the policy that hits most at one capacity. The bounds are
// no policies.
func (s *simulation) best(curves []curve, at int) (best simulate.Row) {
	for _, c := range curves {
		if r := c.rows[at]; !c.bound && (best.Policy == "" || r.TotalHitTokens > best.TotalHitTokens) {
			best = r
		}
	}
	return best
}

// table has a row for each capacity; the best of each stands out, and the
// bounds do not.
func (s *simulation) table(curves []curve) reportTable {
	t := reportTable{
		Title: "Hit rates", Note: "% of the prompt tokens. The best of each row is marked; --json has all digits.",
		Head: []string{"capacity"},
	}
	for _, c := range curves {
		t.Head = append(t.Head, c.name)
	}
	for i, r := range curves[0].rows {
		row := cells(s.capacity(r.CapacityBlocks))
		best := s.best(curves, i)
		for _, c := range curves {
			x := cell{Text: fmt.Sprintf("%.1f", 100*c.rows[i].OverallHitRate)}
			switch {
			case c.bound:
				x.Class = "bound"
			case c.rows[i].TotalHitTokens == best.TotalHitTokens:
				x.Class = "best"
			}
			row = append(row, x)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// capacity is a number of blocks for people.
func (s *simulation) capacity(blocks int) string {
	if b := s.flags.simulate.blockBytes; b > 0 {
		return size(int64(blocks) * b)
	}
	return plural(blocks, "block")
}

var curveSize = chartSize{900, 380}

// draw draws hit rates over capacities, on a logarithmic scale.
func (s *simulation) draw(curves []curve) (template.HTML, error) {
	unit, label := 1.0, "blocks"
	if b := s.flags.simulate.blockBytes; b > 0 {
		unit, label = float64(b)/(1<<30), "GiB"
	}
	p := newPlot(label, "% of prompt tokens")
	low, high, top := math.Inf(1), 0.0, 1.0
	for i := len(curves) - 1; i >= 0; i-- { // the first ends up above the others
		points := make(plotter.XYs, len(curves[i].rows))
		for j, r := range curves[i].rows {
			points[j] = plotter.XY{X: float64(r.CapacityBlocks) * unit, Y: 100 * r.OverallHitRate}
			low, high, top = min(low, points[j].X), max(high, points[j].X), max(top, points[j].Y)
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return "", fmt.Errorf("chart: %w", err)
		}
		line.LineStyle = draw.LineStyle{Color: curves[i].color, Width: 2}
		if curves[i].bound {
			line.LineStyle.Dashes = []vg.Length{6, 4}
		}
		dots.GlyphStyle = draw.GlyphStyle{Color: curves[i].color, Radius: 2.5, Shape: draw.CircleGlyph{}}
		p.Add(line, dots)
	}
	p.X.Scale = plot.LogScale{}
	p.X.Min, p.X.Max = low*0.95, high*1.05
	p.X.Tick.Marker = plot.TickerFunc(capacityTicks)
	p.Y.Min, p.Y.Max = 0, top*1.05
	return svg(p, curveSize)
}

// capacityTicks are 1, 2, 5, 10 and so on.
func capacityTicks(low, high float64) (out []plot.Tick) {
	for decade := math.Pow(10, math.Floor(math.Log10(low))); decade <= high; decade *= 10 {
		for _, m := range []float64{1, 2, 5} {
			if v := decade * m; v >= low && v <= high {
				label := humanize.CommafWithDigits(v, max(0, -int(math.Floor(math.Log10(decade)))))
				out = append(out, plot.Tick{Value: v, Label: strings.TrimSuffix(label, ".0")})
			}
		}
	}
	return out
}
