package policytest

import (
	"math"
	"slices"

	"github.com/kvstored/kvstored/policy"
)

// besides is a request for chunks that the last prompt needs besides, each of which is
// like its end.
func besides(m *tenure, chain []*chunk, r policy.Request) {
	for _, c := range chain {
		use(m, c)
		c.class = classOf(c.count, true, m.prompt[0], m.prompt[1], 0)
		c.step = stepOf(math.Max(0, float64(r.Tokens-r.ChunkTokens/2)), float64(r.PrefillDepth))
		if m.steps <= c.step {
			m.steps = c.step + 1
			arrangeAs(m, arrangement{m.steps, m.arranged.lost, m.arranged.guarded})
		}
		m.insert(c, false)
	}
	m.forgetOldest(2*len(chain) + 16)
}

// use is one more use of a chunk, which is taken out of its cell.
func use(m *tenure, c *chunk) {
	if c.known() {
		m.hits[c.class][ageBin(m.now-c.last)]++
		m.trust.seen++
	}
	m.takeOut(c)
	m.ghosts = slices.DeleteFunc(m.ghosts, func(g *chunk) bool { return g == c })
	c.ghost = false
	if !c.resident {
		c.ghost = true
		m.ghosts = append(m.ghosts, c)
	}
	c.count = min(c.count+1, 4)
	c.last = m.now
}
