package simulate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kvstored/kvstored/internal/explain"
)

// Prompts are requests as a daemon has seen them, or a sample of them: a tree of
// chunks, and prompts that are paths in it. They do not change once they are made.
type Prompts struct {
	Parents []uint32 // of each chunk: number + 1 of the one before it, which is lower; 0 = none
	List    []Prompt // in their order
}

// Prompt is one request.
type Prompt struct {
	Last   uint32 // number + 1 of the last chunk that is stored after it; 0 = none
	Chunk  int    // tokens of a whole chunk
	Tokens int    // asked for, from the start of the prompt
	Skip   int    // of Tokens, those at the start that the client had
	Millis int64  // when it came
	Group  int    // of its session, below Groups; equal for all requests of one
	Warmup bool   // it is played, and not counted
}

// Groups is how many groups of sessions there are, from whose differences the error of an
// estimate is told.
const Groups = explain.Groups

// PairOptions are the tiers that Play simulates. A disk of no chunks is none.
type PairOptions struct {
	Policy, DiskPolicy     string
	Capacity, DiskCapacity int // in chunks
	Write                  Write
	UnsafeAge              time.Duration // for Auto; 0 = no bound
	MinHits                int           // for Selective
	PrefillDepth           float64       // see Options

	ByCompute, DiskByCompute bool // see TierOptions
}

// Count is what some prompts asked for and hit, in tokens and in prefill compute.
type Count struct {
	Asked, Hit, DRAM       int64
	Compute, ComputeOfHits float64
}

// Add adds another count.
func (c *Count) Add(o *Count) {
	c.Asked += o.Asked
	c.Hit += o.Hit
	c.DRAM += o.DRAM
	c.Compute += o.Compute
	c.ComputeOfHits += o.ComputeOfHits
}

// Sub takes another count away.
func (c *Count) Sub(o *Count) {
	c.Asked -= o.Asked
	c.Hit -= o.Hit
	c.DRAM -= o.DRAM
	c.Compute -= o.Compute
	c.ComputeOfHits -= o.ComputeOfHits
}

// Played is what a pair of tiers made of prompts, by the group of their sessions.
type Played [Groups]Count

// Play simulates one pair of tiers.
func (ps *Prompts) Play(ctx context.Context, o *PairOptions) (*Played, error) {
	if o.Capacity < 1 || o.DiskCapacity < 0 {
		return nil, fmt.Errorf("DRAM of %d chunks over a disk of %d: use at least 1, and 0 for no disk", o.Capacity, o.DiskCapacity)
	}
	t := &Trace{parents: ps.Parents}
	row := &TierRow{Row: Row{Policy: o.Policy, CapacityBlocks: o.Capacity}, DiskPolicy: o.DiskPolicy, DiskBlocks: o.DiskCapacity, Write: o.Write}
	depth := cmp.Or(o.PrefillDepth, DefaultPrefillDepth)
	p, err := newPair(t, row, &TierOptions{UnsafeAge: o.UnsafeAge, MinHits: o.MinHits, PrefillDepth: depth, ByCompute: o.ByCompute, DiskByCompute: o.DiskByCompute})
	if err != nil {
		return nil, err
	}
	s := newScore(depth, 0, false)
	out := new(Played)
	var path []uint32
	for i := range ps.List {
		if i%askEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		prompt := &ps.List[i]
		path = ps.path(path[:0], prompt.Last)
		prefix, near := p.request(&request{tokens: max(prompt.Tokens, prompt.Chunk*len(path)), per: prompt.Chunk, millis: prompt.Millis}, path)
		if !prompt.Warmup {
			c := prompt.count(prefix, near, s)
			out[prompt.Group].Add(&c)
		}
	}
	return out, nil
}

// path is the chunks up to and with the one before number last, from the start.
func (ps *Prompts) path(dst []uint32, last uint32) []uint32 {
	for ; last != 0; last = ps.Parents[last-1] {
		dst = append(dst, last-1)
	}
	slices.Reverse(dst)
	return dst
}

// count is what a prompt asked for, and had of a prefix of so many chunks.
func (p *Prompt) count(prefix int, near []int, s *score) Count {
	hit := max(p.Skip, min(prefix*p.Chunk, p.Tokens))
	c := Count{
		Asked: int64(p.Tokens - p.Skip), Hit: int64(hit - p.Skip),
		Compute: s.compute(p.Tokens) - s.compute(p.Skip), ComputeOfHits: s.compute(hit) - s.compute(p.Skip),
	}
	for _, at := range near {
		c.DRAM += int64(max(0, min((at+1)*p.Chunk, p.Tokens)-max(at*p.Chunk, p.Skip)))
	}
	return c
}
