package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Wrong options are refused with what they are about; nothing is measured silently
// that was not asked for.
func TestWrongOptions(t *testing.T) {
	for args, says := range map[string]string{
		"-sizes 9MiB":       `-sizes: "9MiB" is no size up to 8MiB`,
		"-sizes 64KiB,":     `-sizes: "" is no size`,
		"-sizes 0":          `-sizes: "0" is no size`,
		"-sizes -1KiB":      `-sizes: "-1KiB" is no size`,
		"-sizes many":       `-sizes: "many" is no size`,
		"-rounds 0":         "-rounds: 0: use 1 or more",
		"-rounds -7":        "-rounds: -7: use 1 or more",
		"-rounds x":         "invalid value",
		"-clients -1":       "-clients: -1: use 1 to 64",
		"-clients 65":       "-clients: 65: use 1 to 64",
		"-busy -idle":       "-busy and -idle leave nothing",
		"-only [":           "-only: error parsing regexp",
		"-only puts":        `-only: "puts" names no row; there are round trip, put,`,
		"-size 64KiB":       "flag provided but not defined",
		"-idle put":         `"put" is no option`,
		"-busy -clients 4x": "invalid value",
	} {
		if _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want one that says %q", args, err, says)
		}
	}
}

func TestOptions(t *testing.T) {
	o, err := parse(nil)
	if err != nil || o.rounds != 7 || !slices.Equal(o.loads, []bool{false, true}) || !slices.Equal(o.clients, []int{1, 4}) || len(o.sizes) != 5 {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = parse([]string{"-busy", "-clients", "3", "-sizes", "64KiB,8MiB", "-only", "^put$"})
	if err != nil || !slices.Equal(o.loads, []bool{true}) || !slices.Equal(o.clients, []int{3}) || !slices.Equal(o.sizes, []int{64 << 10, 8 << 20}) {
		t.Errorf("%+v, %v", o, err)
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * 1e9) }

// The numbers of a table are those of its cells: medians of the rounds, quantiles of all
// calls, seconds a GiB, and ratios within a round.
func TestNumbers(t *testing.T) {
	cells := func(took ...float64) (all []cell) {
		for _, s := range took {
			all = append(all, cell{Bytes: 1 << 30, Took: seconds(s), Client: seconds(s / 2), Server: seconds(s / 4)})
		}
		return all
	}
	a, b := cells(1, 2, 4), cells(3, 2, 2)
	for i := range 100 {
		a[i%3].Each = append(a[i%3].Each, seconds(float64(i+1)))
	}
	if got := rate(a); got != "0.50" {
		t.Errorf("%s GiB/s", got)
	}
	if p50, p99 := quantiles(a); p50 != seconds(51) || p99 != seconds(100) {
		t.Errorf("p50 %v, p99 %v", p50, p99)
	}
	if client, server := perGiB(a, func(c *cell) time.Duration { return c.Client }), perGiB(a, func(c *cell) time.Duration { return c.Server }); client != "1.00" || server != "0.50" {
		t.Errorf("client %s, server %s s a GiB", client, server)
	}
	r := row{cells: map[string][]cell{ours: a, memcached: b}}
	if got := r.times(memcached); got != "1.00x" { // of 3, 1 and .5; the medians alone would be 1.00, too
		t.Errorf("%s", got)
	}
	r.cells[memcached] = cells(3, 8, 2)
	if got := r.times(memcached); got != "3.00x" { // of 3, 4 and .5; the medians would make 1.5
		t.Errorf("%s", got)
	}
}
