package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

func (x *bench) add(name, floor string, limit float64, bytes int, s sample) {
	i := slices.IndexFunc(x.rows, func(r *row) bool { return r.name == name })
	if i < 0 {
		i = len(x.rows)
		x.rows = append(x.rows, &row{name: name, floor: floor, limit: limit, bytes: bytes})
	}
	x.rows[i].seen = append(x.rows[i].seen, s)
}

func (x *bench) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "what\tmedian us\tGiB/s\tfloor\tfloor us\tratio\tmin\tmax\tgoal\tof copy\tbare us\tof bare\tcpu s/GiB\t")
	for _, r := range x.rows {
		r.print(w)
	}
	_ = w.Flush() // to standard output
}

func (r *row) print(w *tabwriter.Writer) {
	ratios := collect(r.seen, func(s *sample) float64 { return s.timesOf(s.least) })
	took := middle(r.seen, func(s *sample) time.Duration { return s.took })
	rate, goal, bare, used := "-", "-", "-", "-"
	if r.bytes > 0 {
		rate = fmt.Sprintf("%.1f", float64(r.bytes)/took.Seconds()/(1<<30))
	}
	if r.limit > 0 {
		verdict := "met"
		if ratios[len(ratios)/2] > r.limit {
			verdict = "missed"
		}
		goal = fmt.Sprintf("<= %.2f %s", r.limit, verdict)
	}
	if d := middle(r.seen, func(s *sample) time.Duration { return s.bare }); d > 0 {
		bare = fmt.Sprintf("%.1f", us(d))
	}
	if d := middle(r.seen, func(s *sample) time.Duration { return s.used }); d > 0 {
		used = fmt.Sprintf("%.3f", d.Seconds()*(1<<30)/workingSet)
	}
	fmt.Fprintf(w, "%s\t%.1f\t%s\t%s\t%.1f\t%.2f\t%.2f\t%.2f\t%s\t%s\t%s\t%s\t%s\t\n", r.name, us(took), rate, r.floor,
		us(middle(r.seen, func(s *sample) time.Duration { return s.least })), ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1], goal,
		times(r.seen, func(s *sample) time.Duration { return s.copy }), bare, times(r.seen, func(s *sample) time.Duration { return s.bare }), used)
}

// times is how many times something it took, in the median; "-" where that was not
// measured.
func times(seen []sample, of func(*sample) time.Duration) string {
	all := collect(seen, func(s *sample) float64 { return s.timesOf(of(s)) })
	if m := all[len(all)/2]; m > 0 {
		return fmt.Sprintf("%.2f", m)
	}
	return "-"
}

// collect is something of all samples, in order.
func collect[T cmp.Ordered](seen []sample, of func(*sample) T) (out []T) {
	for i := range seen {
		out = append(out, of(&seen[i]))
	}
	slices.Sort(out)
	return out
}

func middle(seen []sample, of func(*sample) time.Duration) time.Duration {
	all := collect(seen, of)
	return all[len(all)/2]
}

func median(ds []time.Duration) time.Duration {
	s := slices.Clone(ds)
	slices.Sort(s)
	return s[len(s)/2]
}

func us(d time.Duration) float64 { return float64(d) / 1e3 }

func mib(n int) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
