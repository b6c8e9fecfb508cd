package dashboard

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kvstored/kvstored/internal/chart"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/whatif"
)

// curves are the colors of the policies in a chart of sizes, the present one first. The
// table has those for which there is no color.
var curves = [...]chart.Color{chart.Blue, chart.Orange, chart.Green, chart.Violet}

// whatIf is what other sizes and policies would hit, as last estimated.
func (v *view) whatIf(r *whatif.Report) {
	switch {
	case r == nil:
		v.Text["whatif"] = "Nothing is estimated: admin.what_if is off."
		return
	case r.At.IsZero():
		v.Text["whatif"] = "Nothing is estimated yet; it takes a hundred prompts and a minute. kvstored whatif estimates at once."
		return
	}
	worst := 0.0
	for i := range r.Rows {
		worst = max(worst, r.Rows[i].HitError)
	}
	v.Text["whatif"] = fmt.Sprintf("From %s in %s of the sessions, %s ago; standard error at most %.1f points. DRAM without end would hit %s.",
		human.Plural(r.Requests, "prompt"), human.Percent(r.Share, 1), human.Duration(time.Since(r.At).Truncate(time.Second)), 100*worst, human.Percent(r.Bound.Hit, 1))
	v.Tables["whatif"] = &table{Head: []string{"tier", "policy"}}
	v.whatIfTier(r, "cpu", "DRAM", &r.Now.DRAM)
	if r.Now.Disk.Bytes > 0 {
		v.whatIfTier(r, "disk", "disk", &r.Now.Disk)
	}
}

// whatIfTier draws and lists what another size or policy of one tier would hit.
func (v *view) whatIfTier(r *whatif.Report, name, title string, now *whatif.Tier) {
	t := v.Tables["whatif"]
	by := make(map[string][]*whatif.Row)
	var policies []string
	for i := range r.Rows {
		if row := &r.Rows[i]; row.Tier == name {
			if by[row.Policy] == nil {
				policies = append(policies, row.Policy)
			}
			by[row.Policy] = append(by[row.Policy], row)
		}
	}
	for _, p := range policies {
		cells := []string{title, p}
		if p == now.Policy {
			cells[1] += " (now)"
		}
		for _, row := range by[p] {
			if len(t.Rows) == 0 {
				t.Head = append(t.Head, fmt.Sprintf("%gx", row.Factor))
			}
			cells = append(cells, fmt.Sprintf("%.1f %% / %.1f %%", 100*row.Hit, 100*row.Compute))
		}
		t.Rows = append(t.Rows, cells)
	}
	v.Charts["whatif_"+name] = whatIfChart(r, by, policies, title, now)
}

// whatIfChart is the hits over the size of a tier: the present policy, those that hit most
// beside it, and the bound of a cache without end.
func whatIfChart(r *whatif.Report, by map[string][]*whatif.Row, policies []string, title string, now *whatif.Tier) drawn {
	rank := func(policy string) (hit float64) {
		for _, row := range by[policy] {
			switch {
			case row.Current:
				return math.Inf(1)
			case row.Factor == 1:
				hit = row.Hit
			}
		}
		return hit
	}
	policies = slices.Clone(policies)
	slices.SortStableFunc(policies, func(a, b string) int { return cmp.Compare(rank(b), rank(a)) })
	var sizes []float64
	for _, row := range by[now.Policy] {
		sizes = append(sizes, row.Factor)
	}
	l := chart.Lines{
		Title: "Hits by size of " + title, Y: chart.Axis{Title: "% of tokens", High: 100},
		X: chart.Axis{
			Title: title + ", half to four times its size", Low: sizes[0] / 1.15, High: sizes[len(sizes)-1] * 1.15, Ticks: sizes,
			Format: func(factor float64) string { return human.Bytes(factor * float64(now.Bytes)) },
		},
	}
	for i, p := range policies[:min(len(curves), len(policies))] {
		line := chart.Line{Name: p, Color: curves[i], Dots: true}
		if p == now.Policy {
			line.Name += " (now)"
		}
		for _, row := range by[p] {
			line.Points = append(line.Points, chart.Point{X: row.Factor, Y: 100 * row.Hit})
		}
		l.Lines = append(l.Lines, line)
	}
	bound := chart.Line{Name: "DRAM without end", Color: chart.Gray, Dashed: true}
	for _, size := range sizes {
		bound.Points = append(bound.Points, chart.Point{X: size, Y: 100 * r.Bound.Hit})
	}
	l.Lines = append(l.Lines, bound)
	return draw(&l)
}
