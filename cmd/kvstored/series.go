package main

import (
	"time"

	"github.com/kvstored/kvstored/internal/replay"
)

// phase is a part of a run.
type phase uint8

const (
	beforeRestart phase = iota
	afterRestart
)

// restartWindow is how many prompts on each side of a restart are compared.
const restartWindow = 24

// point is one prompt of a series.
type point struct {
	phase    phase
	turn     int
	tokens   int
	tiers    [len(replay.TierNames)]int64 // tokens of the verified prefix, by tier
	hit      int64
	ready    time.Duration
	cold     bool // some of the prefix came from below DRAM
	anything bool // there was a prefix at all
}

// series is what is kept of each prompt for charts, in the order played.
type series struct{ points []point }

func newSeries() *series { return new(series) }

func (s *series) add(o *replay.Outcome, turn int, ph phase) {
	p := point{
		phase: ph, turn: turn, tokens: o.Tokens, hit: int64(o.Hit.Tokens),
		ready: o.Ready, cold: o.Cold(), anything: o.Hit.Chunks > 0,
	}
	for i, n := range o.Tiers {
		p.tiers[i] = int64(n.Tokens)
	}
	s.points = append(s.points, p)
}

// waited is how long prompts waited for their prefix, in all.
func (s *series) waited() (sum time.Duration) {
	for _, p := range s.points {
		sum += p.ready
	}
	return sum
}

// share is where the tokens of some prompts came from: the tiers, then the engine.
type share struct {
	n      int // prompts
	tokens [len(replay.TierNames) + 1]float64
}

func (s *share) add(p *point) {
	s.n++
	for i, t := range p.tiers {
		s.tokens[i] += float64(t)
	}
	s.tokens[len(s.tokens)-1] += float64(int64(p.tokens) - p.hit)
}

// all is all tokens.
func (s *share) all() (sum float64) {
	for _, t := range s.tokens {
		sum += t
	}
	return sum
}

// hit is all tokens that were not computed.
func (s *share) hit() float64 { return s.all() - s.tokens[len(s.tokens)-1] }

// byTurn groups by the number of the turn.
func (s *series) byTurn(turns int) []share {
	out := make([]share, turns)
	for i := range s.points {
		p := &s.points[i]
		out[p.turn].add(p)
	}
	return out
}

// inOrder groups into n parts of about equal length, as played.
func (s *series) inOrder(n int) []share {
	n = min(n, len(s.points))
	out := make([]share, n)
	for i := range s.points {
		out[i*n/len(s.points)].add(&s.points[i])
	}
	return out
}

// around is the last n prompts before the restart and the first n after it.
func (s *series) around(n int) (before, after share) {
	at := 0
	for at < len(s.points) && s.points[at].phase == beforeRestart {
		at++
	}
	for i := max(0, at-n); i < at; i++ {
		before.add(&s.points[i])
	}
	for i := at; i < min(at+n, len(s.points)); i++ {
		after.add(&s.points[i])
	}
	return before, after
}

// readyTimes is how long prefixes took to be ready: those that lay in DRAM,
// and those of which some had to come up.
func (s *series) readyTimes() (warm, cold []time.Duration) {
	for _, p := range s.points {
		switch {
		case !p.anything:
		case p.cold:
			cold = append(cold, p.ready)
		default:
			warm = append(warm, p.ready)
		}
	}
	return warm, cold
}
