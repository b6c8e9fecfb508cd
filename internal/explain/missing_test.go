package explain

import (
	"math/rand/v2"
	"strings"
	"testing"
)

var tierSizes = map[string]uint64{"cpu": 4 << 30, "disk": 50 << 30}

// TestNames: each reason and decline has a name of its own, and is said somehow.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for r := range reasons {
		a := Absence{Reason: r}
		if r != Declined && (seen[a.Name()] || a.Name() == "") {
			t.Errorf("reason %d is called %q, as another", r, a.Name())
		}
		seen[a.Name()] = true
		if _, ok := sayings[r.String()]; !ok && r != Nothing && r != Evicted && r != Declined {
			t.Errorf("%v is not said", r)
		}
	}
	for d := range declines {
		a := Absence{Reason: Declined, Why: d}
		if d != QueueFull && seen[a.Name()] {
			t.Errorf("decline %d is called %q, as another", d, a.Name())
		}
		seen[a.Name()] = true
	}
}

// TestSteps: the bound of a distance's step is not below it, nor more than a quarter above.
func TestSteps(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 24))
	for range 100000 {
		n := r.Uint64() >> (18 + r.IntN(30))
		b := boundOf(stepOf(n))
		if b < n || n >= 1<<least && float64(b) > 1.25*float64(n) {
			t.Fatalf("%d is counted as %d", n, b)
		}
	}
	if n := boundOf(stepOf(1 << 63)); n > 1<<48 {
		t.Errorf("the largest distance is %d", n)
	}
}

// TestCounts: totals are the sums of all tokens added, by tier and reason; growth is summed up.
func TestCounts(t *testing.T) {
	c := new(Counts)
	c.Add(&Absence{Reason: Nothing, Tier: noTier}, 5)
	c.Add(&Absence{Reason: NeverStored, Tier: noTier}, 7)
	c.Add(&Absence{Reason: Declined, Tier: 1, Why: QueueFull}, 9)
	c.Add(&Absence{Reason: Declined, Tier: 1, Why: NotWorth}, 10)
	c.Add(&Absence{Reason: Evicted, Tier: 0, Since: 1 << 30}, 20)
	c.Add(&Absence{Reason: Evicted, Tier: 0, Since: 1 << 20}, 30)
	got := c.Read()
	if got.tokens() != 76 || len(got.Missed) != 4 {
		t.Errorf("counted %+v", got)
	}
	want := []Growth{{"cpu", 1<<20 + 1<<18, 30}, {"cpu", 1<<30 + 1<<28, 50}}
	if len(got.Growth) != 2 || got.Growth[0] != want[0] || got.Growth[1] != want[1] {
		t.Errorf("growth %+v, want %+v", got.Growth, want)
	}
}

// TestSentence: the three situations that operators meet, and their opposites.
func TestSentence(t *testing.T) {
	add := func(list ...any) *Totals {
		c := new(Counts)
		for i := 0; i < len(list); i += 2 {
			a := list[i].(Absence)
			c.Add(&a, uint64(list[i+1].(int)))
		}
		totals := c.Read()
		return &totals
	}
	evicted := func(tier uint8, since uint64) Absence { return Absence{Reason: Evicted, Tier: tier, Since: since} }
	for name, c := range map[string]struct {
		asked  uint64
		totals *Totals
		want   string
	}{
		"nothing asked": {0, add(), ""},
		"all hit":       {1000, add(), "100 % was hit"},
		"DRAM is small": {1000, add(Because(NeverStored), 610, evicted(0, 1<<30+1<<29), 220, evicted(0, 1<<40), 80),
			"9 % was hit; 61 % was new text, never stored; 30 % was evicted from DRAM: 1.8 GiB more DRAM would have hit 22 %"},
		"no size helps": {1000, add(Because(NeverStored), 500, evicted(1, 1<<40), 400),
			"10 % was hit; 50 % was new text, never stored; 40 % was evicted from disk, most of it too long ago for 4 times as much disk"},
		"the disk is behind": {1000, add(Absence{Reason: Declined, Tier: 1, Why: QueueFull}, 700, Because(OtherSpace), 100),
			"20 % was hit; 70 % was not kept by disk: the writer was behind; 10 % is stored in another space only (`kvstored why` says what differs)"},
		"little is not told": {10000, add(Because(Timeout), 99, Because(NeverStored), 5000), "49 % was hit; 50 % was new text, never stored"},
	} {
		if got := Sentence(c.asked, c.totals, tierSizes); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
	}
	sizeless := add(evicted(0, 1<<30), 500)
	sizeless.Growth = nil
	if got := Sentence(1000, sizeless, tierSizes); got != "50 % was hit; 50 % was evicted from DRAM" {
		t.Errorf("without tierSizes: %s", got)
	}
	if strings.Contains(Sentence(10, add(Because(Reason(3)), 5), tierSizes), "%!") {
		t.Error("a sentence is not whole")
	}
}
