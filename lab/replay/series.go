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
	phase  Phase
	tokens int
	hit    int // tokens of the verified prefix
	ready  time.Duration
}

// Series is the numbers of each prompt in the order played. It is not safe for
// concurrent use.
type Series struct{ points []point }

// Add keeps one prompt.
func (s *Series) Add(o *Outcome, ph Phase) {
	s.points = append(s.points, point{phase: ph, tokens: o.Tokens, hit: int(o.Hit.Tokens), ready: o.Ready})
}

// Waited is how long prompts waited for their prefix, in all.
func (s *Series) Waited() (sum time.Duration) {
	for _, p := range s.points {
		sum += p.ready
	}
	return sum
}

// Share is what part of some prompts was not computed.
type Share struct{ Prompts, Tokens, Hit int }

func (s *Share) add(p *point) {
	s.Prompts++
	s.Tokens += p.tokens
	s.Hit += p.hit
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
