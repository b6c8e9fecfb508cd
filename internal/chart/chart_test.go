package chart

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// element is one start tag of a drawing.
type element struct {
	name string
	attr map[string]string
	text string
}

func (e *element) number(t *testing.T, name string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(e.attr[name], 64)
	if err != nil {
		t.Fatalf("%s of %s: %v", name, e.name, err)
	}
	return v
}

// parse reads a drawing, which must be well-formed XML.
func parse(t *testing.T, svg string) (out []*element) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	var open []*element
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := &element{name: token.Name.Local, attr: make(map[string]string)}
			for _, a := range token.Attr {
				e.attr[a.Name.Local] = a.Value
			}
			out, open = append(out, e), append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].text += string(token)
			}
		}
	}
}

func texts(all []*element) (out []string) {
	for _, e := range all {
		if e.name == "text" {
			out = append(out, e.text)
		}
	}
	return out
}

func TestLinearTicks(t *testing.T) {
	for _, tt := range []struct {
		low, high float64
		want      string
	}{
		{0, 100, "0 20 40 60 80 100"},
		{0, 161, "0 50 100 150"},
		{0, 1, "0 0.2 0.4 0.6 0.8 1"},
		{0, 7, "0 2 4 6"},
		{0, 12, "0 2.5 5 7.5 10"},
		{-3, 3, "-2 0 2"},
		{0, 1234567, "0 250,000 500,000 750,000 1,000,000"},
		{5, 5, ""},
		{0, math.Inf(1), ""},
		{math.NaN(), 1, ""},
	} {
		if got := strings.Join(format(linearTicks(tt.low, tt.high, roundUp), Number), " "); got != tt.want {
			t.Errorf("%v to %v: %s, want %s", tt.low, tt.high, got, tt.want)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.3 - 0.1: "0.2", 1e6: "1,000,000", 1234.5: "1,234.5", -1234: "-1,234", 0.002: "0.002", 0.00012: "0.00012", 999: "999", math.Copysign(0, -1) + 0: "0",
	} {
		if got := Number(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}

// TestBars: the segments of a column stand on each other and are as high as
// their values, columns stand in order, and every text is there as it is.
func TestBars(t *testing.T) {
	b := Bars{
		Title: `<a> & "b"`, X: "x & y", Y: "</svg>", Labels: []string{"one", "<two>", ""}, Size: Size{900, 260},
		Parts: []Part{{`p<"'&`, Blue, []float64{10, 0, 30}}, {"q", Sky, []float64{20, 40, math.NaN()}}, {"r", Pale, []float64{-5, math.Inf(1)}}},
	}
	svg := b.SVG()
	if svg != b.SVG() {
		t.Error("the same chart is drawn in another way")
	}
	all := parse(t, svg)
	if got := all[0].attr["aria-label"]; got != b.Title {
		t.Errorf("the title is %q", got)
	}
	if got := strings.Join(texts(all), "|"); got != "</svg>|x & y|0|10|20|30|40|one|<two>" {
		t.Errorf("texts: %s", got)
	}
	var rects []*element
	for _, e := range all {
		if e.name == "rect" {
			rects = append(rects, e)
		}
	}
	if len(rects) != 4 {
		t.Fatalf("%d segments, want 4:\n%s", len(rects), svg)
	}
	unit := rects[0].number(t, "height") / 10
	for i, want := range []float64{10, 20, 40, 30} {
		if got := rects[i].number(t, "height") / unit; math.Abs(got-want) > 0.2 {
			t.Errorf("segment %d is %.1f high, want %v", i, got, want)
		}
	}
	if below, above := rects[0].number(t, "y"), rects[1].number(t, "y")+rects[1].number(t, "height"); math.Abs(below-above) > 0.11 {
		t.Errorf("the second segment begins at %v, the first ends at %v", above, below)
	}
	if !(rects[0].number(t, "x") < rects[2].number(t, "x") && rects[2].number(t, "x") < rects[3].number(t, "x")) {
		t.Error("the columns are not in order")
	}
}

// TestManyBars: of many columns as many have a label as have room for it.
func TestManyBars(t *testing.T) {
	b := Bars{Size: Size{900, 260}}
	for i := range 200 {
		b.Labels = append(b.Labels, strconv.Itoa(i))
	}
	end, n := math.Inf(-1), 0
	for _, e := range parse(t, b.SVG()) {
		if e.name == "text" && e.attr["text-anchor"] == "middle" {
			half := float64(len(e.text)) * digitWidth / 2
			if x := e.number(t, "x"); x-half < end {
				t.Errorf("label %s overlaps the one before it", e.text)
			} else {
				end = x + half
			}
			n++
		}
	}
	if n < 20 {
		t.Errorf("only %d labels", n)
	}
}

// TestLines: dots lie where their numbers say, by a logarithmic x; steps hold
// their value to the end; pointing at a dot tells its numbers.
func TestLines(t *testing.T) {
	l := Lines{
		Title: "t", X: Axis{Title: "GiB"}, Y: Axis{Title: "%", High: 100}, Size: Size{900, 380},
		Lines: []Line{
			{Name: "a<b", Color: Red, Dots: true, Points: []Point{{1, 0}, {10, 50}, {100, 100}, {math.NaN(), 1}, {0, 1}}},
			{Name: "s", Color: Blue, Steps: true, Dashed: true, Points: []Point{{1, 10}, {2, 20}}},
			{Name: "none", Color: Green},
		},
	}
	svg := l.SVG()
	all := parse(t, svg)
	var dots, paths []*element
	for _, e := range all {
		switch {
		case e.name == "circle":
			dots = append(dots, e)
		case e.name == "path" && strings.HasPrefix(e.attr["class"], "line "):
			paths = append(paths, e)
		}
	}
	if len(dots) != 3 || len(paths) != 2 {
		t.Fatalf("%d dots and %d lines:\n%s", len(dots), len(paths), svg)
	}
	for _, axis := range []string{"cx", "cy"} {
		if a, b := dots[1].number(t, axis)-dots[0].number(t, axis), dots[2].number(t, axis)-dots[1].number(t, axis); math.Abs(a-b) > 0.2 {
			t.Errorf("%s: a decade and half the height are %v and %v", axis, a, b)
		}
	}
	if !strings.Contains(svg, "<title>a&lt;b: 50 at 10</title>") {
		t.Errorf("a dot does not tell its numbers:\n%s", svg)
	}
	steps := paths[0] // the first line ends up above the others
	if d := steps.attr["d"]; strings.Contains(d, "L") || !strings.HasSuffix(d, "H884") || !strings.HasSuffix(steps.attr["class"], " dashed") {
		t.Errorf("steps are drawn as %s, %s", d, steps.attr["class"])
	}
	if got := texts(all); !slices.Contains(got, "1") || !slices.Contains(got, "10") || !slices.Contains(got, "100") {
		t.Errorf("texts: %q", got)
	}
}

// TestAnyLines: for random points the drawing is whole, has labels on
// both axes, which do not overlap, and nothing lies outside it.
func TestAnyLines(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		l := Lines{Size: Size{300 + r.Float64()*700, 150 + r.Float64()*300}}
		for range r.IntN(4) {
			line := Line{Color: Color(r.IntN(int(numColors))), Steps: r.IntN(2) == 0, Dots: r.IntN(2) == 0}
			scale := math.Pow(10, r.Float64()*12-4)
			for range r.IntN(20) {
				line.Points = append(line.Points, Point{scale * math.Pow(10, r.Float64()*r.Float64()*6), r.Float64() * scale})
			}
			l.Lines = append(l.Lines, line)
		}
		svg := l.SVG()
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") || strings.Contains(svg, ">-0<") {
			t.Fatalf("%+v is drawn as\n%s", l, svg)
		}
		across, end := 0, math.Inf(-1)
		for _, e := range parse(t, svg) {
			switch {
			case e.name == "text" && e.attr["text-anchor"] == "middle":
				half := float64(len(e.text)) * digitWidth / 2
				if x := e.number(t, "x"); x-half < end {
					t.Fatalf("labels overlap at %v:\n%s", x, svg)
				} else {
					end = x + half
				}
				across++
			case e.name == "circle":
				if x, y := e.number(t, "cx"), e.number(t, "cy"); x < 0 || x > l.Size.Width || y < 0 || y > l.Size.Height {
					t.Fatalf("a dot at %v, %v is outside:\n%s", x, y, svg)
				}
			}
		}
		if across == 0 {
			t.Fatalf("no label below:\n%s", svg)
		}
	}
}

// TestContrast: every color can be told from the page (WCAG 2.2, 1.4.11), in
// light and dark, and from every other.
func TestContrast(t *testing.T) {
	luminance := func(hex string) float64 {
		var sum float64
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			n, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			v := float64(n) / 255
			if v <= 0.04045 {
				v /= 12.92
			} else {
				v = math.Pow((v+0.055)/1.055, 2.4)
			}
			sum += weight * v
		}
		return sum
	}
	for mode, page := range []string{lightPage, darkPage} {
		seen := make(map[string]Color)
		for i := range palette {
			c, hex := Color(i), palette[i][mode]
			a, b := luminance(hex), luminance(page)
			if contrast := (max(a, b) + 0.05) / (min(a, b) + 0.05); contrast < 3 && c != Pale {
				t.Errorf("color %d, %s on %s, has a contrast of %.2f", c, hex, page, contrast)
			}
			if other, ok := seen[hex]; ok {
				t.Errorf("colors %d and %d are both %s", c, other, hex)
			}
			seen[hex] = c
			if !strings.Contains(Style(), fmt.Sprintf("--chart-%d:%s;", c, hex)) {
				t.Errorf("the style sheet has no %s", hex)
			}
		}
	}
}

// TestByteTicks: the ticks of bytes are round in binary units.
func TestByteTicks(t *testing.T) {
	for _, tt := range []struct {
		high float64
		want string
	}{{40 << 20, "0 10 20 30 40"}, {1 << 20, "0 0.25 0.5 0.75 1"}, {3000 << 20, "0 1024 2048"}, {900 << 20, "0 256 512 768"}} {
		got := strings.Join(format(linearTicks(0, tt.high, roundUpBytes), func(v float64) string { return fmt.Sprintf("%g", math.Round(v/(1<<20)*100)/100) }), " ")
		if got != tt.want {
			t.Errorf("up to %g MiB: %s, want %s", tt.high/(1<<20), got, tt.want)
		}
	}
}
