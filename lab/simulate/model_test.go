package simulate

import (
	"math"
	"reflect"
	"slices"

	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/policy/policytest"
)

// slow is a cache as one would write it down; admit is told of a miss.
type slow interface {
	residents() []uint32
	hit(b uint32)
	admit(at int, b uint32)
}

// slowRow plays a trace, with everything searched for every time.
func slowRow(t *Trace, c slow) Row {
	r := Row{Requests: len(t.requests), TotalPromptTokens: t.promptTokens, BlockAccesses: len(t.blocks)}
	at := 0
	spared, all := 0., 0.
	for _, req := range t.requests {
		blocks := t.blocks[at:req.end]
		k := 0
		for k < len(blocks) && slices.Contains(c.residents(), blocks[k]) {
			k++
		}
		hit := min(k*t.blockTokens, req.tokens)
		r.TotalHitTokens += int64(hit)
		for p := range req.tokens {
			cost := 1 + (float64(p)+.5)/DefaultPrefillDepth
			if all += cost; p < hit {
				spared += cost
			}
		}
		for _, b := range blocks {
			if slices.Contains(c.residents(), b) {
				r.BlockHits++
				c.hit(b)
			} else {
				r.BlockMisses++
				c.admit(at, b)
			}
			at++
		}
	}
	r.OverallHitRate = float64(r.TotalHitTokens) / float64(r.TotalPromptTokens)
	r.FinalCacheBlocks = len(c.residents())
	r.OverallComputeRate = spared / all
	return r
}

// same reports whether two rows are equal, but for how their compute was added up.
func same(a, b *Row) bool {
	x, y := *a, *b
	near := math.Abs(x.OverallComputeRate-y.OverallComputeRate) < 1e-9
	x.OverallComputeRate, y.OverallComputeRate = 0, 0
	return near && reflect.DeepEqual(x, y)
}

// slowPolicy is a cache under a reference model of package policytest.
type slowPolicy struct {
	model    policy.Policy
	capacity int
	ids      []uint32
}

func (c *slowPolicy) residents() []uint32 { return c.ids }
func (c *slowPolicy) hit(b uint32)        { c.model.Touch(policy.ID(b)) }

func (c *slowPolicy) admit(_ int, b uint32) {
	c.model.Miss(uint64(b), 1)
	if len(c.ids) == c.capacity {
		id, _ := c.model.Evict(func(policy.ID) bool { return true })
		c.ids = cut(c.ids, uint32(id))
	}
	c.model.Add(policy.ID(b), policy.Meta{Hash: uint64(b), Size: 1})
	c.ids = append(c.ids, b)
}

func cut(ids []uint32, b uint32) []uint32 {
	return slices.DeleteFunc(ids, func(x uint32) bool { return x == b })
}

// slowBelady looks forward in the trace.
type slowBelady struct {
	blocks   []uint32
	capacity int
	ids      []uint32
}

func (c *slowBelady) residents() []uint32 { return c.ids }
func (c *slowBelady) hit(uint32)          {}

func (c *slowBelady) admit(at int, b uint32) {
	if len(c.ids) == c.capacity {
		victim, latest := uint32(0), -1
		for _, id := range c.ids {
			next := slices.Index(c.blocks[at:], id)
			if next < 0 {
				next = math.MaxInt
			}
			if next > latest {
				victim, latest = id, next
			}
		}
		c.ids = cut(c.ids, victim)
	}
	c.ids = append(c.ids, b)
}

// slowStatic is S3-FIFO with strict queues over slices.
type slowStatic struct {
	smallSize, mainSize int
	small, main, ghosts []uint32
	uses                map[uint32]int
	saturated, ghostHit int
}

func newSlowStatic(capacity int) *slowStatic {
	small := int(math.RoundToEven(0.1 * float64(capacity)))
	return &slowStatic{smallSize: small, mainSize: capacity - small, uses: make(map[uint32]int)}
}

func (c *slowStatic) residents() []uint32 { return slices.Concat(c.small, c.main) }

func (c *slowStatic) hit(b uint32) {
	if c.uses[b] == 3 {
		c.saturated++
	}
	c.uses[b] = min(3, c.uses[b]+1)
}

func (c *slowStatic) admit(_ int, b uint32) {
	c.uses[b] = 0
	if slices.Contains(c.ghosts, b) {
		c.ghostHit++
		c.ghosts = cut(c.ghosts, b)
		c.toMain(b)
		return
	}
	for len(c.small) >= c.smallSize {
		old := c.small[0]
		c.small = c.small[1:]
		if c.uses[old] >= 1 {
			c.toMain(old)
		} else {
			c.toGhosts(old)
		}
	}
	c.small = append(c.small, b)
}

func (c *slowStatic) toMain(b uint32) {
	for len(c.main) >= c.mainSize {
		old := c.main[0]
		c.main = c.main[1:]
		if c.uses[old] == 0 {
			c.toGhosts(old)
			continue
		}
		c.uses[old]--
		c.main = append(c.main, old)
	}
	c.main = append(c.main, b)
}

func (c *slowStatic) toGhosts(b uint32) {
	c.ghosts = append(cut(c.ghosts, b), b)
	if len(c.ghosts) > c.mainSize {
		c.ghosts = c.ghosts[1:]
	}
}

func newSlow(t *Trace, name string, capacity int) slow {
	switch name {
	case Static:
		return newSlowStatic(capacity)
	case Sieve:
		return &slowPolicy{model: &slowSieve{used: make(map[policy.ID]bool)}, capacity: capacity}
	case GDSF:
		return &slowPolicy{model: &slowGDSF{}, capacity: capacity}
	case Belady:
		return &slowBelady{blocks: t.blocks, capacity: capacity}
	case Infinite:
		return &slowPolicy{model: policytest.Model("lru", 1), capacity: math.MaxInt}
	}
	return &slowPolicy{model: policytest.Model(name, int64(capacity)), capacity: capacity}
}
