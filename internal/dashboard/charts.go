package dashboard

import (
	"slices"

	"github.com/kvstored/kvstored/internal/chart"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/tier"
)

// size is that of a chart: about as many units wide as a narrow window has pixels.
var size = chart.Size{Width: 380, Height: 200}

// draw draws lines, and lists those that have points.
func draw(l *chart.Lines) drawn {
	l.Size = size
	l.Lines = slices.DeleteFunc(l.Lines, func(line chart.Line) bool { return len(line.Points) == 0 })
	d := drawn{SVG: l.SVG(), Legend: []swatch{}}
	for _, line := range l.Lines {
		d.Legend = append(d.Legend, swatch{line.Color.Swatch(), line.Name})
	}
	return d
}

// timeAxis is the minutes up to now.
func timeAxis(steps []sample) chart.Axis {
	minutes := 1.0
	if len(steps) > 0 {
		minutes = max(minutes, steps[len(steps)-1].at.Sub(steps[0].at).Minutes())
	}
	return chart.Axis{Title: "minutes ago", Low: -minutes, High: 0, Linear: true, Format: func(v float64) string { return chart.Number(0 - v) }}
}

// line is a value for each step; ok false leaves a step out.
func line(name string, color chart.Color, steps []sample, value func(a, b *sample) (v float64, ok bool)) chart.Line {
	l := chart.Line{Name: name, Color: color, Dots: len(steps) < 12}
	for i := 1; i < len(steps); i++ {
		if v, ok := value(&steps[i-1], &steps[i]); ok {
			l.Points = append(l.Points, chart.Point{X: -steps[len(steps)-1].at.Sub(steps[i].at).Minutes(), Y: v})
		}
	}
	return l
}

// hitsChart is the share of tokens that were hits, over time.
func hitsChart(steps []sample) drawn {
	share := func(places ...tier.Place) func(a, b *sample) (float64, bool) {
		return func(a, b *sample) (float64, bool) {
			hit := uint64(0)
			for _, p := range places {
				hit += b.hit[p] - a.hit[p]
			}
			asked := b.asked - a.asked
			return min(100, 100*float64(hit)/float64(max(1, asked))), b.asked > a.asked
		}
	}
	return draw(&chart.Lines{
		Title: "Hit ratio over time", X: timeAxis(steps), Y: chart.Axis{Title: "% of tokens", High: 100},
		Lines: []chart.Line{
			line("all tiers", chart.Green, steps, share(tier.CPU, tier.Disk, tier.Remote)),
			line("DRAM", chart.Blue, steps, share(tier.CPU)),
			line("disk", chart.Orange, steps, share(tier.Disk)),
		},
	})
}

// flowChart is the bytes that are moved, over time.
func flowChart(steps []sample, tiers map[tier.Place]tier.Stats) drawn {
	rate := func(of func(*sample) uint64) func(a, b *sample) (float64, bool) {
		return func(a, b *sample) (float64, bool) {
			seconds := b.at.Sub(a.at).Seconds()
			return float64(of(b)-of(a)) / max(seconds, 0.001), seconds > 0 && of(b) >= of(a)
		}
	}
	lines := []chart.Line{line("stored by clients", chart.Blue, steps, rate(func(s *sample) uint64 { return s.stored }))}
	colors := [...][2]chart.Color{tier.Disk: {chart.Orange, chart.Brown}, tier.Remote: {chart.Violet, chart.Pink}}
	for _, p := range []tier.Place{tier.Disk, tier.Remote} {
		if _, ok := tiers[p]; ok {
			lines = append(lines,
				line("read from "+titles[p], colors[p][0], steps, rate(func(s *sample) uint64 { return s.read[p] })),
				line("written to "+titles[p], colors[p][1], steps, rate(func(s *sample) uint64 { return s.written[p] })))
		}
	}
	return draw(&chart.Lines{
		Title: "Bytes moved over time", X: timeAxis(steps), Lines: lines,
		Y: chart.Axis{Title: "a second", Format: human.Bytes[float64], Bytes: true},
	})
}
