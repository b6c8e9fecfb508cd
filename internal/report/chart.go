package report

import (
	"fmt"
	"html/template"
	"slices"
	"time"

	"github.com/kvstored/kvstored/internal/chart"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/replay"
)

// tierColors are one for each tier, nearest first, then for what the engine
// computes.
var tierColors = [...]chart.Color{chart.Blue, chart.Sky, chart.Violet, chart.Pale}

var (
	halfWide  = chart.Size{Width: 420, Height: 220}
	wholeWide = chart.Size{Width: 900, Height: 260}
	narrow    = chart.Size{Width: 340, Height: 220}
)

// drawn is a chart in its size and a narrow one, of which the page shows what there is room
// for: on a phone the texts of a wide chart would be too small to read.
func drawn(size *chart.Size, svg func() string) template.HTML {
	broad := svg()
	*size = narrow
	return template.HTML(`<div class="broad">` + broad + `</div><div class="narrow">` + svg() + `</div>`)
}

// shareBars is a chart with a bar for each share, with a segment for each tier
// and one for computed tokens.
type shareBars struct {
	title    string
	shares   []replay.Share
	labels   []string // of the bars
	x, y     string   // titles of the axes
	unit     float64  // of the tokens, or
	relative bool     // all bars are 100 % high
	size     chart.Size
}

func (c *shareBars) chart() *chart.Bars {
	b := &chart.Bars{Title: c.title, X: c.x, Y: c.y, Labels: c.labels, Size: c.size}
	if c.relative {
		b.High = 100
	}
	for i, color := range tierColors {
		part := chart.Part{Name: partName(i), Color: color, Values: make([]float64, len(c.shares))}
		for j, s := range c.shares {
			unit := c.unit
			if c.relative {
				unit = max(1, s.All()) / 100
			}
			part.Values[j] = s.Tokens[i] / unit
		}
		b.Parts = append(b.Parts, part)
	}
	return b
}

// figure is the chart with its legend and a note.
func (c *shareBars) figure(note string) figure {
	b := c.chart()
	return figure{
		Title: c.title, Note: note, Legend: tierLegend(c.shares), SVG: drawn(&b.Size, b.SVG), Wide: c.size == wholeWide,
	}
}

// partName is the name of one of tierColors.
func partName(i int) string {
	if i == len(replay.TierTitles) {
		return "computed by the engine"
	}
	return "from " + replay.TierTitles[i]
}

// cdfPoints bounds a line: more than there are pixels says nothing.
const cdfPoints = 500

// cdfLine is which share of the durations is at most how long, in microseconds.
// It sorts them.
func cdfLine(name string, color chart.Color, set []time.Duration) chart.Line {
	slices.Sort(set)
	l := chart.Line{Name: name, Color: color, Steps: true, Points: make([]chart.Point, min(len(set), cdfPoints))}
	for j := range l.Points {
		at := (j + 1) * len(set) / len(l.Points)
		us := max(float64(set[at-1])/float64(time.Microsecond), 1)
		l.Points[j] = chart.Point{X: us, Y: 100 * float64(at) / float64(len(set))}
	}
	return l
}

// timeLabel is a number of microseconds as the label of a tick.
func timeLabel(us float64) string {
	for _, u := range []struct {
		below, unit float64
		name        string
	}{{999, 1, "µs"}, {999e3, 1e3, "ms"}} {
		if us < u.below {
			return chart.Number(us/u.unit) + " " + u.name
		}
	}
	return chart.Number(us/1e6) + " s"
}

// tierLegend explains the colors of the tiers that were used.
func tierLegend(shares []replay.Share) (out []legend) {
	for i, c := range tierColors {
		used := i < 2 || i == len(replay.TierTitles)
		for _, s := range shares {
			used = used || s.Tokens[i] > 0
		}
		if used {
			out = append(out, legend{c, partName(i)})
		}
	}
	return out
}

// readyChart is how long prefixes took to be ready, by where they were.
func readyChart(s *replay.Series, size chart.Size) figure {
	warm, cold := s.ReadyTimes()
	f := figure{
		Title: "How fast a prefix is ready", Wide: size == wholeWide,
		Note: "From the question to the last byte in DRAM; share of the prompts that waited no longer.",
	}
	c := chart.Lines{Title: f.Title, Y: chart.Axis{Title: "% of prompts", High: 100}, X: chart.Axis{Format: timeLabel}, Size: size}
	for _, set := range []struct {
		times []time.Duration
		color chart.Color
		name  string
	}{{warm, tierColors[0], "all in DRAM (%s)"}, {cold, tierColors[1], "some from disk (%s)"}} {
		if len(set.times) > 0 {
			name := fmt.Sprintf(set.name, human.Plural(len(set.times), "prompt"))
			c.Lines = append(c.Lines, cdfLine(name, set.color, set.times))
			f.Legend = append(f.Legend, legend{set.color, name})
		}
	}
	if len(c.Lines) > 0 {
		f.SVG = drawn(&c.Size, c.SVG)
	}
	return f
}
