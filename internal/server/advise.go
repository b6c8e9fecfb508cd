package server

import (
	"context"

	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/prefetch"
	"github.com/kvstored/kvstored/tier"
)

// advise says how much of the match to bring up and how much to compute, by
// what the tiers delivered lately and how many others they serve. The job
// brings up no more than that.
func (j *job) advise(ctx context.Context, m *stack.Match, prefillRate uint32) *wire.Advice {
	if j.whole != nil {
		return j.whole.adviseLength(ctx, prefillRate)
	}
	n := m.Chunks
	if j.mu.done {
		n = j.hot // no more is to be had
	}
	places, err := j.stack.PlacesOf(ctx, j.chains, j.search, n)
	if err != nil {
		return nil
	}
	var links [tier.Places]prefetch.Link
	var size [tier.Places]int64
	for p := tier.Disk; p < tier.Places; p++ {
		s := j.stack.Speed(p)
		links[p] = prefetch.Link{First: s.First, BytesPerSecond: s.BytesPerSecond / float64(1+s.Others)}
		size[p] = int64(j.ranks()) * s.ChunkBytes
	}
	// A leased chunk is there, also if the index has no place for it by now.
	steps := make([]prefetch.Step, max(j.hot, len(places)))
	for i := range steps {
		steps[i] = prefetch.Step{Link: -1, Tokens: j.chain.Tokens[j.skip()+i]}
		if i >= j.hot {
			p := places[i]
			steps[i].Link, steps[i].Bytes = int(p), size[p]
		}
	}
	load, after := prefetch.Advise(steps, links[:], j.behind(len(steps)), float64(prefillRate))
	if load < n {
		j.limit, j.rests, j.unasked = j.skip()+load, nil, nil
	}
	if !j.mu.done && load == j.hot && j.rests == nil {
		j.mu.done = true
		j.touch(0, j.hot)
	}
	return &wire.Advice{Load: j.firstTokens(load), Micros: uint64(after.Microseconds())}
}

// behind is how many tokens of the prompt lie behind its first n chunks.
func (j *job) behind(n int) (tokens uint64) {
	for _, t := range j.chain.Tokens[j.skip()+n:] {
		tokens += uint64(t)
	}
	return tokens
}

// advisedLengths is among how many usable lengths the advice chooses, the longest ones.
const advisedLengths = 64

// adviseLength is advise for a hybrid model: it chooses among the lengths at which the
// prompt is usable, and none. The job brings up what the one that was chosen needs.
func (a *assembly) adviseLength(ctx context.Context, prefillRate uint32) *wire.Advice {
	skip := a.family.Skip
	lengths, err := a.job.stack.Lengths(ctx, a.family, a.job.search, &a.aim, advisedLengths)
	if err != nil {
		return nil
	}
	if skip == 0 || len(lengths) == 0 || lengths[len(lengths)-1] != skip {
		lengths = append(lengths, skip)
	}
	total := skip + int(a.job.behind(0))
	best, least := a.aim, -1.0
	for _, n := range lengths {
		m, err := a.aim, error(nil)
		switch {
		case n == skip:
			m = stack.FamilyMatch{Tokens: skip, Needs: make([]stack.Need, len(a.family.Groups))}
		case n < a.aim.Tokens:
			m, err = a.job.stack.ProbeFamily(ctx, a.family, a.job.search, n, nil)
		}
		if err != nil {
			return nil
		}
		if t := a.takes(&m) + float64(total-m.Tokens)/float64(prefillRate); least < 0 || t < least {
			best, least = m, t
		}
	}
	a.aim = best
	return &wire.Advice{Load: countOf(usableOf(a.family, &best).Count), Micros: uint64(least * 1e6)}
}

// takes is the seconds in which all that m needs comes up.
func (a *assembly) takes(m *stack.FamilyMatch) float64 {
	t, sizes := a.tempo(), a.sizes(m)
	for _, l := range a.lacking(m) {
		t.load(l.at, sizes[l.Group])
	}
	return t.took
}
