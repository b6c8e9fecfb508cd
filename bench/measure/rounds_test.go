package measure_test

import (
	"strings"
	"testing"

	"github.com/kvstored/kvstored/bench/measure"
)

func TestRounds(t *testing.T) {
	r := measure.Rounds{Contenders: []string{"ours", "theirs", "late", "never", "alone"}}
	get := r.Row("get")
	get.Times["ours"] = []float64{100, 400, 200}
	get.Times["theirs"] = []float64{50, 100, 90} // ratios .5, .25, .45: of the medians it would be .45 too
	get.Times["late"] = []float64{300}
	put := r.Row("put")
	put.Times["ours"] = []float64{1, 2, 3}
	put.Times["theirs"] = []float64{9, 2, 3} // ratios 9, 1, 1: of the medians it would be 1.5
	r.Row("load").Times["alone"] = []float64{12.34}
	if r.Row("get") != get || len(r.Rows) != 3 {
		t.Error("a row is there twice")
	}
	const want = `|      | ours             | theirs                 | late                  | alone |
| ---- | ---------------- | ---------------------- | --------------------- | ----- |
| get  | 200 (100-400)    | 90.0 (0.45x 0.25-0.50) | 300 (3.00x 3.00-3.00) | -     |
| put  | 2.00 (1.00-3.00) | 3.00 (1.00x 1.00-9.00) | -                     | -     |
| load | -                | -                      | -                     | 12.3  |
`
	if got := r.Markdown(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	r.Differences = true
	if want, got := "90.0 (-110.0, -300.0 to -50.0)", r.Markdown(); !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwithout %q", got, want)
	}
}
