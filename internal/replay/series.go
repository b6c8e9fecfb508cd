package replay

import (
	"time"
)

// Phase is a part of a run.
type Phase uint8

// The parts of a run with one restart of the daemon.
const (
	BeforeRestart Phase = iota
	AfterRestart
)

// point is one prompt of a series.
type point struct {
	phase    Phase
	turn     int
	tokens   int
	tiers    [len(TierNames)]int64 // tokens of the verified prefix, by tier
	hit      int64
	ready    time.Duration
	cold     bool // some of the prefix came from below DRAM
	anything bool // there was a prefix at all
}

// Series is the numbers of each prompt for charts, in the order played. It is
// not safe for concurrent use.
type Series struct{ points []point }

// Len is how many prompts were played.
func (s *Series) Len() int { return len(s.points) }

// Add keeps one prompt of a turn.
func (s *Series) Add(o *Outcome, turn int, ph Phase) {
	p := point{
		phase: ph, turn: turn, tokens: o.Tokens, hit: int64(o.Hit.Tokens),
		ready: o.Ready, cold: o.Cold(), anything: o.Hit.Chunks > 0,
	}
	for i, n := range o.Tiers {
		p.tiers[i] = int64(n.Tokens)
	}
	s.points = append(s.points, p)
}

// Waited is how long prompts waited for their prefix, in all.
func (s *Series) Waited() (sum time.Duration) {
	for _, p := range s.points {
		sum += p.ready
	}
	return sum
}

// Share is where the tokens of some prompts came from: the tiers, then the engine.
type Share struct {
	Prompts int
	Tokens  [len(TierNames) + 1]float64
}

func (s *Share) add(p *point) {
	s.Prompts++
	for i, t := range p.tiers {
		s.Tokens[i] += float64(t)
	}
	s.Tokens[len(s.Tokens)-1] += float64(int64(p.tokens) - p.hit)
}

// All is all tokens.
func (s *Share) All() (sum float64) {
	for _, t := range s.Tokens {
		sum += t
	}
	return sum
}

// Hit is all tokens that were not computed.
func (s *Share) Hit() float64 { return s.All() - s.Tokens[len(s.Tokens)-1] }

// ByTurn groups by the number of the turn.
func (s *Series) ByTurn(turns int) []Share {
	out := make([]Share, turns)
	for i := range s.points {
		p := &s.points[i]
		out[p.turn].add(p)
	}
	return out
}

// InOrder groups into n parts of about equal length, as played.
func (s *Series) InOrder(n int) []Share {
	n = min(n, len(s.points))
	out := make([]Share, n)
	for i := range s.points {
		out[i*n/len(s.points)].add(&s.points[i])
	}
	return out
}

// Around is the last n prompts before the restart and the first n after it.
func (s *Series) Around(n int) (before, after Share) {
	at := 0
	for at < len(s.points) && s.points[at].phase == BeforeRestart {
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

// ReadyTimes is how long prefixes took to be ready: those that lay in DRAM,
// and those of which some had to come up.
func (s *Series) ReadyTimes() (warm, cold []time.Duration) {
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
