package policytest

import (
	"cmp"
	"math"
)

// tenureTrust is how far the tables of the tenure model are believed.
type tenureTrust struct {
	kept, rate, seen float64
	lost             bool
}

// update weighs the reuses in a request of so many tokens against the rate that
// the last training promised.
func (m *tenure) update(tokens int64) {
	t := &m.trust
	t.kept = min(1.5, (512*t.kept+t.seen)/(512+t.rate*float64(tokens)))
	t.seen = 0
	was := t.lost
	switch {
	case t.kept < 0.4:
		t.lost = true
	case t.kept >= 0.6:
		t.lost = false
	}
	if t.lost != was {
		m.count("turned")
	}
}

// guarded reports whether little is known, or the cache is small.
func (m *tenure) guarded() bool { return !m.roomy || m.seen() < 128 }

// arrangement is what the order of the cells depends on, beside their values.
type arrangement struct {
	steps         int
	lost, guarded bool
}

// arrange orders the cells as it is due.
func (m *tenure) arrange() { arrangeAs(m, due(m)) }

func due(m *tenure) arrangement { return arrangement{m.steps, m.trust.lost, m.guarded()} }

// arrangeAs orders the cells anew.
func arrangeAs(m *tenure, a arrangement) { m.arranged = a }

// order compares two cells, each a class, a bin and a step: by value times the root of the
// cost, or first by age where that is not believed.
func (m *tenure) order(a, b [3]int) int {
	if m.arranged.lost || m.arranged.guarded {
		if c := cmp.Compare(oldness(b), oldness(a)); c != 0 {
			return c
		}
	}
	value := func(o [3]int) float64 { return math.Float64frombits(math.Float64bits(m.value[o[0]][o[1]]) >> 14 << 14) }
	worth := func(o [3]int) float64 { return value(o) * math.Pow(2, float64(o[2])/4) }
	return cmp.Or(cmp.Compare(worth(a), worth(b)), cmp.Compare(a[2], b[2]), cmp.Compare(value(a), value(b)), cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
}

// placed reports whether a cell is of a step that there was when the cells were ordered.
func (m *tenure) placed(o [3]int) bool { return o[2] < m.arranged.steps }

// oldness is the bin of a cell, or more if it is of chunks that a client is done with.
func oldness(o [3]int) int {
	if o[0]/72 == 1 {
		return 26
	}
	return o[1]
}

// smooth gives each bin its neighbours' values with half the weight.
func smooth(h [26]float64) (s [26]float64) {
	for b := range s {
		sum, weight := h[b], 1.0
		for _, beside := range []int{b - 1, b + 1} {
			if beside >= 0 && beside < 26 {
				sum, weight = sum+h[beside]/2, weight+0.5
			}
		}
		s[b] = sum / weight
	}
	return s
}

// seen is how many observations there are.
func (m *tenure) seen() (sum float64) {
	for c := range m.hits {
		for b := range m.hits[c] {
			sum += m.hits[c][b] + m.gone[c][b]
		}
	}
	return sum
}

func (m *tenure) halve() {
	if m.seen() <= 131072 {
		return
	}
	for c := range m.hits {
		for b := range m.hits[c] {
			m.hits[c][b] /= 2
			m.gone[c][b] /= 2
		}
	}
}
