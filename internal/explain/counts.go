package explain

import (
	"math/bits"
	"sync/atomic"
)

// A distance is counted in steps of a quarter of a power of two, from least on, so that
// a sum of distances is at most a quarter too much.
const (
	least     = 16 // a power of two: 64 KiB
	perDouble = 4
	steps     = 31 * perDouble // up to 128 TiB
)

// kinds are the reasons, and then the declines in the place of Declined.
const kinds = int(reasons) + int(declines)

// Counts are tokens that requests did not get. They are safe for concurrent use.
type Counts struct {
	tokens [noTier + 1][kinds]atomic.Uint64
	near   [noTier][steps]atomic.Uint64 // evicted tokens, by what the tier has evicted since
}

// Add counts tokens.
func (c *Counts) Add(a *Absence, tokens uint64) {
	if tokens == 0 || a.Reason == Nothing {
		return
	}
	kind := int(a.Reason)
	if a.Reason == Declined {
		kind = int(reasons) + int(a.Why)
	}
	tier := min(a.Tier, noTier)
	c.tokens[tier][kind].Add(tokens)
	if a.Reason == Evicted && tier < noTier {
		c.near[tier][stepOf(a.Since)].Add(tokens)
	}
}

// stepOf is the step whose upper bound is n or the next above it.
func stepOf(n uint64) int {
	if n < 1<<least {
		return 0
	}
	power := bits.Len64(n) - 1
	quarter := int(n>>(power-2)) & (perDouble - 1)
	return min((power-least)*perDouble+quarter+1, steps-1)
}

// boundOf is the upper bound of a step, in bytes.
func boundOf(step int) uint64 {
	power := least + step/perDouble
	return 1<<power + uint64(step%perDouble)<<(power-2)
}

// Total is the tokens that were missing for one reason.
type Total struct {
	Tier   string `json:"tier"`
	Reason string `json:"reason"`
	Tokens uint64 `json:"tokens"`
}

// Growth is how many of the evicted tokens a tier with so many bytes more would still
// have had, as far as the order of eviction is that of last use.
type Growth struct {
	Tier   string `json:"tier"`
	Bytes  uint64 `json:"bytes"`
	Tokens uint64 `json:"tokens"`
}

// Totals is a snapshot: missed tokens by tier and reason, and the tokens that more room
// would have kept, by tier and then by bytes.
type Totals struct {
	Missed []Total  `json:"missed"`
	Growth []Growth `json:"growth"`
}

// Read is a snapshot.
func (c *Counts) Read() Totals {
	t := Totals{Missed: []Total{}, Growth: []Growth{}}
	for tier := range c.tokens {
		for kind := range c.tokens[tier] {
			if n := c.tokens[tier][kind].Load(); n > 0 {
				a := Absence{Reason: Reason(kind)}
				if kind >= int(reasons) {
					a = Absence{Reason: Declined, Why: Decline(kind - int(reasons))}
				}
				t.Missed = append(t.Missed, Total{tierNames[tier], a.Name(), n})
			}
		}
	}
	for tier := range c.near {
		sum := uint64(0)
		for step := range c.near[tier] {
			if n := c.near[tier][step].Load(); n > 0 {
				sum += n
				t.Growth = append(t.Growth, Growth{tierNames[tier], boundOf(step), sum})
			}
		}
	}
	return t
}

// tokens is all that was missing.
func (t *Totals) tokens() (n uint64) {
	for i := range t.Missed {
		n += t.Missed[i].Tokens
	}
	return n
}
