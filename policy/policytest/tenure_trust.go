package policytest

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
		m.arrange()
	}
}

// arrange orders the cells: by value, or by age where that is not believed.
func (m *tenure) arrange() {
	m.order = m.order[:0]
	if !m.trust.lost {
		m.order = append(m.order, m.byValue...)
		return
	}
	done := func(c [2]int) bool { return c[0]/72 == 1 }
	for _, c := range m.byValue {
		if done(c) {
			m.order = append(m.order, c)
		}
	}
	for bin := 25; bin >= 0; bin-- {
		for _, c := range m.byValue {
			if c[1] == bin && !done(c) {
				m.order = append(m.order, c)
			}
		}
	}
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
