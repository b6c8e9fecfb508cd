package policy

import (
	"math"
	"slices"
)

// The learner's priors, before it has observations, and how fast they yield
// and observations are forgotten. Between half and twice these values little
// changes: see docs/eviction.md.
const (
	priorHazard = 0.03 // of reuse in a bin
	priorWeight = 20
	shrink      = 256     // observations that outweigh what the coarser class says; half of them where there are hints
	countPrior  = 3       // each further use adds so many times the prior
	memory      = 1 << 17 // observations, then all are halved; and chunks watched
)

// hintPrior is how likely reuse is taken to be where there is a hint, next to
// where there is none, until that has been observed.
var hintPrior = [hints]float64{NoHint: 1, Done: 0.1, Continues: 1, BriefAnswer: 1, MiddleAnswer: 1, LongAnswer: 1}

// learner is the observations: in which bin of its age a chunk of each class
// was asked for again, or was forgotten without.
type learner struct {
	hits, gone [classes][bins]float64
	seen       float64 // sum of both
	highest    Hint    // that there has been
	watched    []uint32
	thin       uint                   // one chunk in 2^thin is watched
	waiting    [classes][bins]float64 // watched, by where they have got to
	risk       [classes][bins]float64
	hazard     [2][classes][bins]float64 // of a level and the one above it
	value      [classes * bins]float64
	order      [classes * bins]uint64 // value and cell: no value is negative, so they sort as integers
	ranked     [classes * bins]uint16 // by value, lowest first
	aged       [classes * bins]uint16 // by age, oldest first, and then by value
	rate       float64                // reuses of watched chunks to be expected per token of time
}

// cellBits is how many bits a cell takes. Values that differ in no more than
// so many of their last bits count as equal.
const cellBits = 14

const _ = uint(1<<cellBits - classes*bins) // every cell fits

// widths are how long each bin lasts, in units of bin 0, and the last as if
// there were one more.
var widths = func() (w [bins]float64) {
	w[0] = 1
	for b := 1; b < bins; b++ {
		w[b] = math.Pow(2, float64(b)/2) - math.Pow(2, float64(b-1)/2)
	}
	return w
}()

// watch makes the learner observe a chunk that was not known, if its hash is
// in the share that is watched. That share bounds how long a training takes.
func (p *tenure) watch(i uint32) {
	l := &p.learner
	if !l.watches(p.chunks.At(i).hash) {
		return
	}
	l.watched = append(l.watched, i)
	p.chunks.At(i).watch = uint32(len(l.watched))
	if len(l.watched) <= memory {
		return
	}
	l.thin++
	p.trust.rate /= 2
	for at := len(l.watched) - 1; at >= 0; at-- {
		if i := l.watched[at]; !l.watches(p.chunks.At(i).hash) {
			p.unwatch(i)
		}
	}
}

func (l *learner) watches(hash uint64) bool { return spread(hash)&(1<<l.thin-1) == 0 }

func (p *tenure) unwatch(i uint32) {
	l := &p.learner
	t := p.chunks.At(i)
	if t.watch == 0 {
		return
	}
	last := l.watched[len(l.watched)-1]
	l.watched[t.watch-1] = last
	l.watched = l.watched[:len(l.watched)-1]
	p.chunks.At(last).watch = t.watch
	t.watch = 0
}

// count notes in tally that the age of a chunk has come to an end.
func (p *tenure) count(tally *[classes][bins]float64, t *chunk) {
	if t.watch != 0 {
		tally[t.class][bin(p.now-t.last)]++
		p.learner.seen++
	}
}

// train ranks all cells anew.
func (p *tenure) train() {
	l := &p.learner
	l.waiting = [classes][bins]float64{}
	p.sample(l, 0, len(l.watched))
	l.fit()
	p.apply(l)
}

// sample counts in l the class and the bin of age that each of the watched
// from..to is in.
func (p *tenure) sample(l *learner, from, to int) {
	for _, i := range p.learner.watched[from:to] {
		t := p.chunks.At(i)
		l.waiting[t.class][bin(p.now-t.last)]++
	}
}

// groups is how many of the plain classes' number have a rank.
func (l *learner) groups() int { return int(l.highest) + 1 }

// fit ranks all cells by the counts.
func (l *learner) fit() {
	groups := l.groups()
	h := l.estimate(groups)
	l.promise(groups, h)
	for c := range groups * plain {
		rate(smooth(&h[c]), l.value[c*bins:][:bins])
	}
	order := l.order[:groups*plain*bins]
	for c := range order {
		value := math.Float64bits(l.value[c]) &^ (1<<cellBits - 1)
		order[c], l.value[c] = value|uint64(c), math.Float64frombits(value)
	}
	slices.Sort(order)
	for rank, c := range order {
		l.ranked[rank] = uint16(c & (1<<cellBits - 1))
	}
	l.sortByAge(groups * plain)
}

// sortByAge makes the ranking for when the values are not to be trusted. A
// chunk with the hint Done is old at any age.
func (l *learner) sortByAge(n int) {
	var at [bins + 1]int
	for _, c := range l.ranked[:n*bins] {
		at[seniority(c)]++
	}
	sum := 0
	for s := bins; s >= 0; s-- {
		at[s], sum = sum, sum+at[s]
	}
	for _, c := range l.ranked[:n*bins] {
		s := seniority(c)
		l.aged[at[s]] = c
		at[s]++
	}
}

// seniority is the bin of a cell, or one more than there are.
func seniority(c uint16) int {
	if Hint(c/(plain*bins)) == Done {
		return bins
	}
	return int(c) % bins
}

// promise sets the rate at which those that wait now are to be asked for.
func (l *learner) promise(groups int, h *[classes][bins]float64) {
	l.rate = 0
	for c := range groups * plain {
		for b := range bins {
			l.rate += l.waiting[c][b] * h[c][b] / (widths[b] * (1 << firstBin))
		}
	}
}

// apply takes over a ranking, and halves the observations once they are more
// than memory.
func (p *tenure) apply(from *learner) {
	l := &p.learner
	l.ranked, l.aged, l.value = from.ranked, from.aged, from.value
	p.trust.rate = math.Ldexp(from.rate, -int(l.thin-from.thin)) // fewer may be watched by now
	p.arrange()
	if l.seen > memory {
		l.seen /= 2
		for c := range l.groups() * plain {
			for b := range bins {
				l.hits[c][b] /= 2
				l.gone[c][b] /= 2
			}
		}
	}
}

// arrange orders the cells as the regime has it.
func (p *tenure) arrange() {
	l := &p.learner
	ranked := &l.ranked
	if p.cells.by = p.regime(); p.cells.by != byValue {
		ranked = &l.aged
	}
	p.cells.rearrange(ranked[:l.groups()*plain*bins])
}

// estimate returns the hazard of each class in each bin: how likely a chunk
// that got there is asked for before it leaves. Those that got no further than
// a bin, without being asked for, count as half exposed there. A class without
// observations is as the coarser one it belongs to, from all chunks down to
// count, tail, new and length.
func (l *learner) estimate(groups int) *[classes][bins]float64 {
	for c := range groups * plain {
		reached := 0.0
		for b := bins - 1; b >= 0; b-- {
			hits, waiting := l.hits[c][b], l.gone[c][b]+l.waiting[c][b]
			l.risk[c][b] = reached + hits + waiting/2
			reached += hits + waiting
		}
	}
	up, own := &l.hazard[0], &l.hazard[1]
	hits, risk := l.sum(0, groups*plain)
	for b := range bins {
		up[0][b] = (hits[b] + priorWeight*priorHazard) / (risk[b] + priorWeight)
	}
	above, weight := groups*plain, float64(shrink)
	if groups > 1 {
		weight /= 2 // hints have told most of the difference, and left fewer in each class
	}
	for _, size := range [...]int{plain, 2 * news * lengths, news * lengths, lengths, 1} {
		if size == above {
			continue // no hints: all chunks are one group
		}
		for k := range groups * plain / size {
			hits, risk := l.sum(k*size, size)
			for b := range bins {
				prior := up[k*size/above][b]
				if size == plain {
					prior *= hintPrior[k]
				}
				if size == 2*news*lengths {
					prior = min(prior*(1+countPrior*float64(k%maxCount)), 1)
				}
				own[k][b] = (hits[b] + weight*prior) / (risk[b] + weight)
			}
		}
		up, own, above = own, up, size
	}
	return up
}

// sum adds up n classes from c on.
func (l *learner) sum(c, n int) (hits, risk [bins]float64) {
	for ; n > 0; c, n = c+1, n-1 {
		for b := range bins {
			hits[b] += l.hits[c][b]
			risk[b] += l.risk[c][b]
		}
	}
	return hits, risk
}

// smooth averages each bin with half its neighbours.
func smooth(h *[bins]float64) (out [bins]float64) {
	for b := range h {
		sum, weight := h[b], 1.0
		if b > 0 {
			sum, weight = sum+h[b-1]/2, weight+0.5
		}
		if b+1 < bins {
			sum, weight = sum+h[b+1]/2, weight+0.5
		}
		out[b] = sum / weight
	}
	return out
}

// rate sets the value of each bin: the best ratio, over all times to give up,
// of the chance of reuse until then to the time kept until then (Gittins,
// Bandit Processes and Dynamic Allocation Indices, JRSS B 1979). Ranking by
// the hazard alone would evict chunks whose reuse is still to come.
func rate(h [bins]float64, value []float64) {
	for b := range value {
		alive, reused, kept, best := 1.0, 0.0, 0.0, 0.0
		for e := b; e < bins; e++ {
			kept += alive * widths[e] * (1 - h[e]/2)
			reused += alive * h[e]
			alive *= 1 - h[e]
			best = max(best, reused/kept)
		}
		value[b] = best
	}
}
