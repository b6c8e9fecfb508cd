package attack

import (
	"context"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

var rude = flag.Duration("rude", 0, "how long TestRude mixes attackers with clients that behave; 20m for a long run")

const (
	rudeAtOnce = 3 // attacks
	rudeTurn   = 10 * time.Second
	rudeTurns  = 3 // between two looks
	// rudeRest is what a daemon has to give back all that it will.
	rudeRest = 15 * time.Second
	// rudeRise is how much more a daemon may rest at in the last third of the looks
	// than in the first, at the least: what stays is what stayed after the first ones.
	// The looks count from when it has met each attack once; the bound of anonSlack above
	// the start holds from the first one on.
	rudeRise = 8 << 20
	// rudeLooks is how many looks a third takes to be compared.
	rudeLooks = 3
)

// Attacks of all kinds at once, again and again, beside clients that compare
// every byte: memory, descriptors and goroutines do not grow from look to look.
func TestRude(t *testing.T) {
	if *rude == 0 {
		t.Skip("-rude says for how long")
	}
	s := scaleOf(t)
	p := newPrey(t)
	witnesses := []*witness{newWitness(t, p), newWitness(t, p)}
	if err := witnesses[0].round(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.d.Flush()
	before, err := p.footprint()
	if err != nil {
		t.Fatal(err)
	}
	before.anon += int64(p.known) * bookBytes
	t.Logf("at first %v", before)
	var rested []int64
	var dealt deck
	met := make(map[int]bool) // attacks
	for begun := time.Now(); time.Since(begun) < *rude && !t.Failed(); {
		ctx, over := context.WithTimeout(t.Context(), rudeTurns*rudeTurn)
		var working sync.WaitGroup
		for _, w := range witnesses {
			working.Go(func() { w.run(ctx) })
		}
		for range rudeTurns {
			hand := dealt.next(rudeAtOnce)
			p.mixed(t, s, witnesses[0], hand)
			for _, i := range hand {
				met[i] = true
			}
		}
		over()
		working.Wait()
		left := time.Now()
		after := p.rests(before)
		t.Logf("%4.0f s: %v, %.1f s after the attackers left; clients that behave: %d and %d rounds, %d and %d errors", time.Since(begun).Seconds(), after,
			time.Since(left).Seconds(), witnesses[0].rounds, witnesses[1].rounds, witnesses[0].errs, witnesses[1].errs)
		least := p.lowest(rudeRest)
		if len(met) == len(attacks) {
			rested = append(rested, least)
		}
		t.Logf("%d MiB at rest; %d of %d attacks met; %s", least>>20, len(met), len(attacks), p.heap())
	}
	if third := len(rested) / 3; third >= rudeLooks {
		first, last := slices.Min(rested[:third]), slices.Min(rested[len(rested)-third:])
		if t.Logf("at the least %d MiB of anonymous memory in the first third of the %d looks since then, %d MiB in the last", first>>20, len(rested), last>>20); last > first+rudeRise {
			t.Error("it grows")
		}
	}
	if witnesses[0].rounds == 0 || witnesses[1].rounds == 0 {
		t.Error("clients that behave were not served")
	}
	p.ends()
}

// deck deals all attacks in an order by chance, and then again: so all have been played
// after some turns.
type deck []int

// next deals n different attacks.
func (d *deck) next(n int) (hand []int) {
	for len(hand) < n {
		if len(*d) == 0 {
			*d = rand.Perm(len(attacks))
		}
		i := slices.IndexFunc(*d, func(a int) bool { return !slices.Contains(hand, a) }) // one at least: hand holds less than a deck
		hand = append(hand, (*d)[i])
		*d = slices.Delete(*d, i, i+1)
	}
	return hand
}

// lowest is the least anonymous memory that the daemon has for so long.
func (p *prey) lowest(d time.Duration) int64 {
	p.t.Helper()
	least := int64(math.MaxInt64)
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		u, err := p.held()
		if err != nil {
			p.t.Fatal(err)
		}
		least = min(least, u.anon)
	}
	return least
}

// mixed runs some attacks at once for a turn.
func (p *prey) mixed(t *testing.T, s scale, w *witness, which []int) {
	t.Helper()
	var all sync.WaitGroup
	for _, i := range which {
		all.Go(func() {
			p.under(t, besieged.RLocker(), i, s, w.chains[0], func(*attackers) { time.Sleep(rudeTurn) })
		})
	}
	all.Wait()
	p.lives()
}
