package main

import (
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// systems in the order of the table's columns.
var systems = []string{ours, memcached, redis, ourRedis, noServer}

// table has the cells of one load and one number of clients.
type table struct{ rows []*row }

// row is what all systems took for one thing at one size, by round.
type row struct {
	what  string
	size  int
	cells map[string][]cell
}

func (t *table) add(system string, size int, c *cell) {
	if c.Bytes == 0 {
		size = 0 // a round trip has none
	}
	i := slices.IndexFunc(t.rows, func(r *row) bool { return r.what == c.What && r.size == size })
	if i < 0 {
		i = len(t.rows)
		t.rows = append(t.rows, &row{what: c.What, size: size, cells: make(map[string][]cell)})
	}
	t.rows[i].cells[system] = append(t.rows[i].cells[system], *c)
}

func (t *table) print() {
	slices.SortStableFunc(t.rows, func(a, b *row) int { return slices.Index(names(), a.what) - slices.Index(names(), b.what) })
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\t\t\tGiB/s\tp50 us\tp99 us\tclient s/GiB\tserver s/GiB\tkvstored is\t")
	for _, r := range t.rows {
		size := mib(r.size)
		if r.size == 0 {
			size = ""
		}
		for _, system := range systems {
			cells := r.cells[system]
			if len(cells) == 0 || r.size == 0 && system == noServer {
				continue
			}
			p50, p99 := quantiles(cells)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.1f\t%.1f\t%s\t%s\t%s\t\n", r.what, size, system, rate(cells), us(p50), us(p99),
				perGiB(cells, func(c *cell) time.Duration { return c.Client }), perGiB(cells, func(c *cell) time.Duration { return c.Server }), r.times(system))
		}
	}
	_ = w.Flush() // to standard output
}

func names() (out []string) {
	for _, s := range steps {
		out = append(out, s.what)
	}
	return out
}

// times is how many times as fast kvstored is as a system, in the median of the
// rounds; beside redis also that of its Redis front end.
func (r *row) times(system string) string {
	ratio := func(a string) string {
		mine, other := r.cells[a], r.cells[system]
		if a == system || len(mine) == 0 || len(mine) != len(other) {
			return ""
		}
		ratios := make([]float64, len(mine))
		for i := range mine {
			ratios[i] = float64(other[i].Took) / float64(mine[i].Took)
		}
		slices.Sort(ratios)
		return fmt.Sprintf("%.2fx", ratios[len(ratios)/2])
	}
	out := ratio(ours)
	if system == redis {
		out += ", by RESP " + ratio(ourRedis)
	}
	return out
}

func quantiles(cells []cell) (p50, p99 time.Duration) {
	var all []time.Duration
	for i := range cells {
		all = append(all, cells[i].Each...)
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*99/100]
}

func rate(cells []cell) string {
	if cells[0].Bytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", median(cells, func(c *cell) float64 { return gib(c) / c.Took.Seconds() }))
}

func perGiB(cells []cell, of func(*cell) time.Duration) string {
	if cells[0].Bytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", median(cells, func(c *cell) float64 { return of(c).Seconds() / gib(c) }))
}

func gib(c *cell) float64 { return float64(c.Bytes) / (1 << 30) }

func median(cells []cell, of func(*cell) float64) float64 {
	var all []float64
	for i := range cells {
		all = append(all, of(&cells[i]))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func us(d time.Duration) float64 { return float64(d) / 1e3 }

func mib(n int) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
