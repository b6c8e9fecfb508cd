package pick

import (
	"errors"
	"fmt"
	"math"

	"github.com/kvstored/kvstored/router/index"
)

// ErrSpeed says that a speed is no rate.
var ErrSpeed = errors.New("wrong speed")

// Speeds are how fast one worker is.
type Speeds struct {
	// Prefill is tokens computed a second; above 0.
	Prefill float64
	// Load is tokens a second that come to the GPU from each medium; 0: blocks
	// there are computed again. That of GPU means nothing.
	Load [index.Media]float64
	// Running is the seconds that each request under way adds to the first token
	// of the next one: decoding takes part of every step, and a session goes on where
	// it began, so that the weight spreads sessions too.
	Running float64
}

// DefaultSpeeds are for a worker of which nothing is known: those of a model of
// some 8 billion parameters on one large GPU, in orders of magnitude.
func DefaultSpeeds() Speeds {
	return Speeds{Prefill: 8000, Load: [index.Media]float64{index.CPU: 200_000, index.Disk: 40_000, index.Shared: 10_000}, Running: 0.06}
}

// maxSpeed is far beyond any machine.
const maxSpeed = 1e12

// Check reports the first speed that is no rate.
func (s *Speeds) Check() error {
	if !(s.Prefill > 0 && s.Prefill <= maxSpeed) {
		return fmt.Errorf("%w: prefill of %v tokens a second; use a number above 0", ErrSpeed, s.Prefill)
	}
	for m := index.CPU; m < index.Media; m++ {
		if rate := s.Load[m]; !(rate >= 0 && rate <= maxSpeed) {
			return fmt.Errorf("%w: %v tokens a second loaded from %s; use 0 for never, or a number above it", ErrSpeed, rate, m)
		}
	}
	if !(s.Running >= 0 && s.Running <= 3600) {
		return fmt.Errorf("%w: %v s for each request under way; use 0 to 3600", ErrSpeed, s.Running)
	}
	return nil
}

// Candidate is one worker that could take a request.
type Candidate struct {
	Worker index.Worker
	// Queue is the seconds until it would begin.
	Queue float64
	// Tokens are leading tokens of the prompt, by medium: how many the worker has,
	// each in that medium or a nearer one ([index.Match.Tokens]).
	Tokens [index.Media]int
	Speeds Speeds
}

// Estimate is what a request would wait for on one worker, in seconds.
type Estimate struct {
	Queue, Load, Compute float64
	Reused               int          // tokens that are not computed
	From                 index.Medium // the farthest medium that is loaded from
}

// Seconds is the expected time to the first token.
func (e Estimate) Seconds() float64 { return e.Queue + e.Load + e.Compute }

// Work is what the request keeps the worker busy with.
func (e Estimate) Work() float64 { return e.Load + e.Compute }

// Expect is the estimate of one worker for a prompt of so many tokens. Of all
// depths to which the prefix could be taken it has the fastest; between equal ones
// the nearest. The last token of a prompt is always computed. All tokens between
// what a medium reaches and what the nearer ones reach count as loaded from it, so
// the load time is an upper bound where a nearer one has some of them.
func Expect(prompt int, c *Candidate) Estimate {
	best := Estimate{Queue: c.Queue, Load: math.Inf(1)}
	have, load := 0, 0.0
	for m := range index.Medium(index.Media) {
		reach := max(min(c.Tokens[m], prompt-1), have)
		if m > index.GPU && reach > have {
			if c.Speeds.Load[m] <= 0 {
				break // and what lies behind it is not reached either
			}
			load += float64(reach-have) / c.Speeds.Load[m]
		}
		have = reach
		e := Estimate{Queue: c.Queue, Load: load, Compute: float64(max(prompt-have, 0)) / c.Speeds.Prefill, Reused: have, From: m}
		if e.Work() < best.Work() {
			best = e
		}
	}
	return best
}
