package report

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/kvstored/kvstored/internal/chart"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/simulate"
)

// Simulation is what the page of one tells.
type Simulation struct {
	Name        string // of the trace's file
	BlockTokens int
	BlockBytes  int64 // 0: not known
	Options     *simulate.Options
	Trace       *simulate.Trace
	Rows        []simulate.Row // by policy, then capacity
	Took        time.Duration
}

// curveColors are for the policies in the order of simulate.Policies, so that
// each has its own in every report; the bounds are gray.
var curveColors = []chart.Color{
	chart.Blue, chart.Orange, chart.Green, chart.Brown, chart.Cyan,
	chart.Yellow, chart.Violet, chart.Pink, chart.Red, chart.Teal,
}

var boundColors = map[string]chart.Color{simulate.Belady: chart.Slate, simulate.Infinite: chart.Gray}

var boundLabels = map[string]string{
	simulate.Belady:   "belady: fewest blocks missed, knowing the future",
	simulate.Infinite: "infinite: everything kept",
}

// beladyNote is why a policy may be above the dashed curve.
const beladyNote = "Belady misses the fewest blocks of all that store each block; tokens are hit by whole prefixes, so a policy that keeps these together, or does not store all, as tenure, can be a little above it."

// curve is one policy's rows, by capacity.
type curve struct {
	name  string
	color chart.Color
	rows  []simulate.Row
	bound bool
}

func (s *Simulation) curves() (out []curve) {
	for i, name := range s.Options.Policies {
		n := len(s.Options.Capacities)
		c := curve{name: name, rows: slices.Clone(s.Rows[i*n : (i+1)*n])}
		slices.SortFunc(c.rows, func(a, b simulate.Row) int { return a.CapacityBlocks - b.CapacityBlocks })
		if c.color, c.bound = boundColors[name]; !c.bound {
			c.color = curveColors[slices.Index(simulate.Policies(), name)]
		}
		out = append(out, c)
	}
	return out
}

// Page makes the page.
func (s *Simulation) Page() *Page {
	curves := s.curves()
	what := "A block may be evicted whatever stands on it, so that the numbers compare with published simulations."
	if s.Options.Tree {
		what = "Only blocks that no other one stands on are evicted, as in the daemon."
	}
	note := "Share of the prompt tokens that need not be computed, by the size of the cache."
	if s.BlockBytes > 0 {
		note += fmt.Sprintf(" A block is %s.", human.Bytes(s.BlockBytes))
	}
	lines := s.chart(curves)
	c := figure{Title: "Hit rate", Note: note + " " + beladyNote, SVG: drawn(&lines.Size, lines.SVG), Wide: true}
	for _, cv := range curves {
		c.Legend = append(c.Legend, legend{cv.color, cmp.Or(boundLabels[cv.name], cv.name)})
	}
	first := s.Rows[0]
	return &Page{
		Title:     "Simulation of " + filepath.Base(s.Name),
		Subtitle:  fmt.Sprintf("%s in blocks of %d tokens. %s", human.Plural(first.Requests, "request"), s.BlockTokens, what),
		Simulated: true,
		Headlines: s.headlines(curves),
		Charts:    []figure{c},
		Tables:    []reportTable{s.table(curves)},
		Facts: []fact{
			{"Prompts", fmt.Sprintf("%s, %s tokens", human.Count(first.Requests), human.Count(first.TotalPromptTokens))},
			{"Blocks", fmt.Sprintf("%s, %s accesses", human.Count(s.Trace.Distinct()), human.Count(first.BlockAccesses))},
			{"Skipped", human.Plural(s.Trace.Skipped, "line")},
			{"Took", human.Duration(s.Took)},
		},
	}
}

// headlines are the policy that hits most at each of a few capacities.
func (s *Simulation) headlines(curves []curve) []headline {
	n := len(curves[0].rows)
	var out []headline
	for _, at := range slices.Compact([]int{n / 4, n / 2, 3 * n / 4, n - 1}) {
		if best := s.best(curves, at); best.Policy != "" {
			out = append(out, headline{
				human.Percent(float64(best.TotalHitTokens), float64(best.TotalPromptTokens)),
				fmt.Sprintf("hit by %s with %s", best.Policy, s.capacity(best.CapacityBlocks)),
			})
		}
	}
	return out
}

// best is the row of the policy that hits most at one capacity. The bounds are
// no policies.
func (s *Simulation) best(curves []curve, at int) (best simulate.Row) {
	for _, c := range curves {
		if r := c.rows[at]; !c.bound && (best.Policy == "" || r.TotalHitTokens > best.TotalHitTokens) {
			best = r
		}
	}
	return best
}

// table has a row for each capacity; the best of each stands out, and the
// bounds do not.
func (s *Simulation) table(curves []curve) reportTable {
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
func (s *Simulation) capacity(blocks int) string {
	if b := s.BlockBytes; b > 0 {
		return human.Bytes(int64(blocks) * b)
	}
	return human.Plural(blocks, "block")
}

var curveSize = chart.Size{Width: 900, Height: 380}

// chart is hit rates over capacities.
func (s *Simulation) chart(curves []curve) *chart.Lines {
	unit, label := 1.0, "blocks"
	if s.BlockBytes > 0 {
		unit, label = float64(s.BlockBytes)/(1<<30), "GiB"
	}
	c := &chart.Lines{Title: "Hit rate by capacity", X: chart.Axis{Title: label}, Y: chart.Axis{Title: "% of prompt tokens"}, Size: curveSize}
	for _, cv := range curves {
		line := chart.Line{Name: cv.name, Color: cv.color, Dashed: cv.bound, Dots: true}
		for _, r := range cv.rows {
			line.Points = append(line.Points, chart.Point{X: float64(r.CapacityBlocks) * unit, Y: 100 * r.OverallHitRate})
		}
		c.Lines = append(c.Lines, line)
	}
	return c
}
