package policy

import "testing"

// TestTrust: kept promises keep it, broken ones lose it, and it comes back
// when as much is asked for again as was promised.
func TestTrust(t *testing.T) {
	trust := trust{kept: 1, rate: 1. / 1000}
	turns := func(requests int, seen float64) (n int) {
		for range requests {
			was := trust.lost
			trust.seen = seen
			if trust.update(10_000); trust.lost != was { // 10 are promised
				n++
			}
		}
		return n
	}
	if n := turns(1000, 10); n != 0 || trust.lost || trust.kept < 0.99 || trust.kept > 1.01 {
		t.Errorf("%d turns with promises kept: %+v", n, trust)
	}
	if n := turns(40, 0); n != 0 || trust.lost { // 1/(1+10/512)^40 = .46
		t.Errorf("%d turns after 400 promises broken: %+v", n, trust)
	}
	if n := turns(10, 0); n != 1 || !trust.lost { // .38
		t.Errorf("%d turns after 500: %+v", n, trust)
	}
	if n := turns(100, 5); n != 0 || !trust.lost {
		t.Errorf("%d turns where half is kept: %+v", n, trust)
	}
	if n := turns(100, 10); n != 1 || trust.lost {
		t.Errorf("%d turns where all is kept again: %+v", n, trust)
	}
}

// TestTrustIsBounded: after any number of reuses beyond the promised ones, some
// 680 broken promises lose it.
func TestTrustIsBounded(t *testing.T) {
	var trust trust
	for _, trust.rate = range []float64{0, 1. / 1000} { // before the first learning nothing is promised
		trust.lost = false
		for range 10_000 {
			trust.seen = 100
			trust.update(10_000)
		}
	}
	n := 0
	for ; !trust.lost && n < 1000; n++ {
		trust.update(10_000) // 10 are promised
	}
	if n < 67 || n > 70 { // 1.5/(1+10/512)^n < .4
		t.Errorf("trust is lost after %d promises", 10*n)
	}
}

// TestDistrustOrders: without trust the oldest goes first, in spite of the
// tables, but for chunks that a client is done with.
func TestDistrustOrders(t *testing.T) {
	p := newTenure()
	p.play(1, 500, 200, func() {})
	p.Observe(Request{Chain: []uint64{1}, Hint: Done})
	p.trust.lost = true
	p.arrange()
	n := p.learner.groups() * plain * bins
	for rank, c := range p.cells.ranked[1:n] {
		if before := p.cells.ranked[rank]; seniority(before) < seniority(c) {
			t.Fatalf("rank %d is of bin %d, the next of bin %d", rank, seniority(before), seniority(c))
		}
		if p.cells.rank[c] != uint16(rank+1) {
			t.Fatalf("cell %d has rank %d, want %d", c, p.cells.rank[c], rank+1)
		}
	}
	if first := p.cells.ranked[0]; Hint(first/(plain*bins)) != Done {
		t.Errorf("first goes cell %d, which nobody is done with", first)
	}
	p.check(t)
}
