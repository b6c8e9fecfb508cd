package policytest

import (
	"slices"

	"github.com/kvstored/kvstored/policy"
)

// tenure is the algorithm over slices: every known chunk in one, each cell a
// slice of its own, everything searched for, and the learner's counts made
// afresh from all chunks each time.
type tenure struct {
	events
	all                         []*chunk
	cells                       [8][432][26][]*chunk // by step of cost, class, bin
	ghosts                      []*chunk
	hits, gone                  [432][26]float64
	value                       [432][26]float64
	steps                       int // of cost there have been
	arranged                    arrangement
	roomy                       bool
	trust                       tenureTrust
	groups                      int // of 72 classes
	now, span                   int64
	prompt                      [2]int // new tokens of the last, and all
	requests, untrained, ghostN int
	inspected                   uint64
}

type chunk struct {
	hash                                      uint64
	id                                        policy.ID
	last                                      int64
	count                                     int
	class, bin, step                          int
	parent                                    *chunk
	resident, ghost, inCell, passedOver, twin bool
}

func newTenure(int64) policy.Policy {
	m := &tenure{ghostN: 32768, groups: 1, steps: 1, trust: tenureTrust{kept: 1}}
	m.train()
	return m
}

func (c *chunk) known() bool { return c.resident || c.ghost }

func (m *tenure) kids(up *chunk) (n int) {
	for _, c := range m.all {
		if c.parent == up {
			n++
		}
	}
	return n
}

func (m *tenure) find(hash uint64) *chunk {
	for _, c := range m.all {
		if c.hash == hash && !c.twin {
			return c
		}
	}
	c := &chunk{hash: hash}
	m.all = append(m.all, c)
	return c
}

func (m *tenure) byID(id policy.ID) *chunk {
	i := slices.IndexFunc(m.all, func(c *chunk) bool { return c.resident && c.id == id })
	return m.all[i]
}

func (m *tenure) Miss(hash uint64, _ int64) {
	m.count("miss")
	m.request([]*chunk{m.find(hash)}, policy.Request{})
}

func (m *tenure) Touch(id policy.ID) { m.request([]*chunk{m.byID(id)}, policy.Request{}) }

func (m *tenure) Observe(r policy.Request) {
	var chain []*chunk
	for _, hash := range r.Chain {
		c := m.find(hash)
		if slices.Contains(chain, c) {
			m.count("repeat")
			break
		}
		chain = append(chain, c)
	}
	switch {
	case len(chain) == 0:
	case r.Beside:
		m.count("beside")
		besides(m, chain, r)
	default:
		m.request(chain, r)
	}
}

func (m *tenure) request(chain []*chunk, r policy.Request) {
	size := r.ChunkTokens
	if size < 1 {
		size = 512
	}
	n := len(chain)
	tokens := max(r.Tokens, (n-1)*size+1)
	m.now += m.span
	m.span = int64(n * size)
	m.ghostN = 32768 * 512 / max(size, 16)
	known := slices.IndexFunc(append(slices.Clone(chain), &chunk{}), func(c *chunk) bool { return !c.known() })
	m.prompt = [2]int{tokens - known*size, tokens}
	for j, c := range chain {
		use(m, c)
		h := 0
		if j >= r.HintFrom && r.Hint <= policy.LongAnswer {
			h = int(r.Hint)
		}
		c.class = classOf(c.count, j == n-1, m.prompt[0], tokens, h)
		c.step = stepOf(float64(j*size+size/2), float64(r.PrefillDepth))
		m.steps = max(m.steps, c.step+1)
	}
	m.requests++
	m.untrained++
	m.roomy = m.roomy || m.residents()*size >= 32768
	m.update(m.span)
	first := r.Hint <= policy.LongAnswer && int(r.Hint) >= m.groups
	if first {
		m.groups = int(r.Hint) + 1
	}
	if first || m.untrained >= max(4, min(256, m.requests/16)) {
		m.untrained = 0
		m.train()
	}
	if due(m) != m.arranged {
		m.arrange()
	}
	m.age()
	for _, c := range chain {
		m.insert(c, false)
	}
	m.forgetOldest(2*n + 16)
}

// age moves each candidate that has grown older into the cell of its age.
func (m *tenure) age() {
	for at := range 8 * m.classes() {
		cells := &m.cells[at%8][at/8]
		for bin := 25; bin >= 0; bin-- {
			for len(cells[bin]) > 0 && ageBin(m.now-cells[bin][0].last) != bin {
				c := cells[bin][0]
				m.takeOut(c)
				m.insert(c, false)
			}
		}
	}
}

// forgetOldest drops ghosts beyond the bound, no more than most.
func (m *tenure) forgetOldest(most int) {
	for ; most > 0 && len(m.ghosts) > 0; most-- {
		nres := m.residents()
		if nres+len(m.ghosts) <= nres+max(nres, m.ghostN) {
			break
		}
		m.count("forgotten")
		g := m.ghosts[0]
		m.ghosts = m.ghosts[1:]
		m.gone[g.class][ageBin(m.now-g.last)]++
		m.forget(g)
	}
}

func (m *tenure) residents() (n int) {
	for _, c := range m.all {
		if c.resident {
			n++
		}
	}
	return n
}

func (m *tenure) forget(c *chunk) {
	c.ghost, c.count = false, 0
	if m.kids(c) == 0 {
		m.all = slices.DeleteFunc(m.all, func(x *chunk) bool { return x == c })
	}
}

func (m *tenure) Add(id policy.ID, meta policy.Meta) {
	c := m.find(meta.Hash)
	if c.resident {
		m.count("twin")
		c = &chunk{hash: meta.Hash, twin: true}
		m.all = append(m.all, c)
	}
	news := !c.ghost
	if news {
		c.count, c.last = min(max(int(meta.Uses), 1), 4), m.now
		c.class, c.step = classOf(c.count, true, 512, 512, 0), 0
	}
	m.ghosts = slices.DeleteFunc(m.ghosts, func(g *chunk) bool { return g == c })
	c.ghost, c.resident, c.id = false, true, id
	if meta.Parent != 0 && meta.Parent != meta.Hash {
		c.parent = m.find(meta.Parent)
		c.parent.passedOver = false
		m.takeOut(c.parent)
	}
	m.insert(c, false)
	if news {
		m.forgetOldest(2)
	}
}

func (m *tenure) Remove(id policy.ID) {
	c := m.byID(id)
	m.endResidency(c)
	m.forget(c)
}

func (m *tenure) Admit(hash, parent uint64) bool {
	if m.guarded() {
		m.count("guarded")
		return true
	}
	own := [3]int{classOf(1, true, 512, 512, 0), 0, 0}
	var up *chunk
	for _, c := range m.all {
		if c.hash == hash && !c.twin && c.known() {
			own = [3]int{c.class, ageBin(m.now - c.last), c.step}
		}
		if parent != 0 && c.hash == parent && !c.twin {
			up = c
		}
	}
	low, found := m.lowest(up)
	if found && m.placed(own) && m.order(own, low) >= 0 {
		m.count("worth")
		return true
	}
	m.count("refused")
	if up != nil && up.inCell {
		m.takeOut(up)
		m.insert(up, true)
	}
	return false
}

func (m *tenure) Advise(chain []uint64, h policy.Hint, from int) {
	if h > policy.LongAnswer {
		return
	}
	if int(h) >= m.groups {
		m.groups = int(h) + 1
		m.train()
	}
	for _, hash := range chain[from:] {
		i := slices.IndexFunc(m.all, func(c *chunk) bool { return c.hash == hash && !c.twin && c.known() })
		if i < 0 {
			continue
		}
		c := m.all[i]
		m.takeOut(c)
		c.class = int(h)*72 + c.class%72
		m.insertByLast(c)
	}
}

func (m *tenure) Defer()                    {}
func (m *tenure) Due() bool                 { return false }
func (m *tenure) Training() policy.Training { return nil }
func (m *tenure) Seen(hash uint64) bool {
	return slices.ContainsFunc(m.all, func(c *chunk) bool { return c.hash == hash && !c.twin && c.known() && c.count > 1 })
}

func (m *tenure) Steps() uint64                     { return m.inspected }
func (m *tenure) MarshalBinary() ([]byte, error)    { return nil, nil }
func (m *tenure) UnmarshalBinary(data []byte) error { return nil }

// classes is how many there are.
func (m *tenure) classes() int { return 72 * m.groups }

func (m *tenure) train() {
	classes := m.classes()
	var alive [432][26]float64
	waiting := m.gone
	for _, c := range m.all {
		if c.known() {
			waiting[c.class][ageBin(m.now-c.last)]++
			alive[c.class][ageBin(m.now-c.last)]++
		}
	}
	var risk [432][26]float64
	for c := range risk {
		for b := range risk[c] {
			risk[c][b] = m.hits[c][b] + waiting[c][b]/2
			for later := b + 1; later < 26; later++ {
				risk[c][b] += m.hits[c][later] + waiting[c][later]
			}
		}
	}
	// of sums the hits in bin b over n classes, and the exposure to them.
	of := func(from, n, b int) (hits, exposed float64) {
		for c := from; c < from+n; c++ {
			hits += m.hits[c][b]
			exposed += risk[c][b]
		}
		return hits, exposed
	}
	m.trust.rate = 0
	weight := 256.0
	if m.groups > 1 {
		weight = 128
	}
	for c := range classes {
		var h [26]float64
		for b := range h {
			hits, risk := of(0, classes, b)
			p := (hits + 20*0.03) / (risk + 20)
			if m.groups > 1 {
				hits, risk = of(c/72*72, 72, b)
				p *= []float64{1, 0.1, 1, 1, 1, 1}[c/72]
				p = (hits + weight*p) / (risk + weight)
			}
			for _, n := range []int{18, 9, 3, 1} {
				if n == 18 {
					p = min(p*(1+3*float64(c/18%4)), 1)
				}
				hits, risk = of(c/n*n, n, b)
				p = (hits + weight*p) / (risk + weight)
			}
			h[b] = p
			m.trust.rate += alive[c][b] * p / (32768 * width(b))
		}
		s := smooth(h)
		for b := range s {
			m.value[c][b] = worthKeeping(s[b:], b)
		}
	}
	m.arrange()
	m.halve()
}

// width is how long a bin lasts, in units of the first.
func width(bin int) float64 {
	if bin == 0 {
		return binEnds[0]
	}
	return binEnds[bin] - binEnds[bin-1]
}

// worthKeeping is the index of a bin, whose hazard is h[0].
func worthKeeping(h []float64, bin int) (best float64) {
	alive, reused, kept := 1.0, 0.0, 0.0
	for i, p := range h {
		kept += alive * width(bin+i) * (1 - p/2)
		reused += alive * p
		alive *= 1 - p
		best = max(best, reused/kept)
	}
	return best
}
