package chart

import (
	"fmt"
	"html"
	"math"
	"unicode/utf8"
)

// Bars is a column for each label, with a segment for each part, stacked.
type Bars struct {
	Title  string // for readers who listen
	X, Y   string // titles of the axes
	Labels []string
	Parts  []Part  // from the bottom up
	High   float64 // top of the y axis; 0 = a round number above the highest column
	Size   Size
}

// Part is what the columns have in one color.
type Part struct {
	Name   string
	Color  Color
	Values []float64 // of the columns; negative ones and those that are missing are 0
}

func (p *Part) value(i int) float64 {
	if i >= len(p.Values) || !(p.Values[i] > 0) || math.IsInf(p.Values[i], 0) {
		return 0
	}
	return p.Values[i]
}

// The most that a column takes of its place, and how wide it is at most.
const (
	columnShare = 0.72
	columnMost  = 84
)

// SVG draws the chart.
func (b *Bars) SVG() string {
	high := b.High
	if high <= 0 {
		high = b.highest()
	}
	ticks := linearTicks(0, high, roundUp)
	labels := format(ticks, Number)
	var c canvas
	c.start(b.Size, b.Title, b.X, b.Y, labels)
	y := scale{low: 0, high: high, from: c.bottom, to: c.top}
	c.yAxis(y, ticks, labels)
	place := (c.right - c.left) / float64(max(1, len(b.Labels)))
	width := min(place*columnShare, columnMost)
	every := b.labelEvery(place)
	for i, label := range b.Labels {
		middle := c.left + place*(float64(i)+0.5)
		sum := 0.0
		for _, p := range b.Parts {
			v := p.value(i)
			if v == 0 {
				continue
			}
			top, bottom := y.at(min(sum+v, high)), y.at(min(sum, high))
			sum += v
			c.printf(`<rect x="%s" y="%s" width="%s" height="%s" class="%s"><title>%s</title></rect>`+"\n",
				coordinate(middle-width/2), coordinate(top), coordinate(width), coordinate(bottom-top), p.Color.fill(),
				html.EscapeString(fmt.Sprintf("%s: %s", p.Name, Number(math.Round(v*10)/10))))
		}
		if label != "" && i%every == 0 {
			c.xLabel(middle, label)
		}
	}
	return c.end()
}

// labelEvery is how many columns come to one label, so that labels stay apart.
func (b *Bars) labelEvery(place float64) int {
next:
	for n := 1; n < len(b.Labels); n++ {
		end := math.Inf(-1)
		for i := 0; i < len(b.Labels); i += n {
			middle, half := place*float64(i), float64(utf8.RuneCountInString(b.Labels[i]))*digitWidth/2
			switch {
			case half == 0:
			case middle-half < end+digitWidth:
				continue next
			default:
				end = middle + half
			}
		}
		return n
	}
	return max(1, len(b.Labels))
}

// highest is a round number above all columns.
func (b *Bars) highest() float64 {
	most := 0.0
	for i := range b.Labels {
		sum := 0.0
		for _, p := range b.Parts {
			sum += p.value(i)
		}
		most = max(most, sum)
	}
	if most == 0 {
		return 1
	}
	step := roundUp(most / mostTicks)
	return math.Ceil(most/step-1e-9) * step
}

func format(values []float64, how func(float64) string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = how(v)
	}
	return out
}
