package whatif

import (
	"context"
	"math"
	"time"

	"github.com/kvstored/kvstored/internal/simulate"
	"github.com/kvstored/kvstored/policy"
)

// factors are the sizes that are tried, as multiples of the present one.
var factors = []float64{0.5, 1, 2, 4}

// play is one report in the making.
type play struct {
	*sample
	report Report
	depth  float64
	done   map[simulate.PairOptions]*simulate.Played
	next   int    // row
	asked  uint64 // prompts of the book, as of then
}

// newPlay lists the rows of a report.
func newPlay(s *sample, now Tiers, depth float64) *play {
	p := &play{sample: s, depth: depth, done: make(map[simulate.PairOptions]*simulate.Played)}
	p.report = Report{Share: 1 / math.Exp2(float64(s.shift)), PrefillDepth: depth, Now: now}
	add := func(name string, t *Tier) {
		for _, pol := range policy.All() {
			for _, f := range factors {
				p.report.Rows = append(p.report.Rows, Row{
					Tier: name, Policy: pol, Factor: f, Bytes: int64(f * float64(t.Bytes)), Current: f == 1 && pol == t.Policy,
				})
			}
		}
	}
	add("cpu", &now.DRAM)
	if now.Disk.Bytes > 0 {
		add("disk", &now.Disk)
	}
	for i := range s.List {
		if q := &s.List[i]; !q.Warmup {
			p.report.Requests++
			p.report.AskedTokens += int64(q.Tokens - q.Skip)
		}
	}
	return p
}

// step plays the next row, and reports whether there are more.
func (p *play) step(ctx context.Context) (more bool, err error) {
	r := &p.report
	if p.next == len(r.Rows) {
		r.Bound = &Row{Tier: "cpu", Policy: r.Now.DRAM.Policy}
		return false, p.fill(ctx, r.Bound, &simulate.PairOptions{Policy: "lru", DiskPolicy: "lru", Capacity: max(1, len(p.Parents))})
	}
	row := &r.Rows[p.next]
	p.next++
	dram, disk := r.Now.DRAM, r.Now.Disk
	o := simulate.PairOptions{
		Policy: dram.Policy, DiskPolicy: disk.Policy, Capacity: p.scaled(dram.Chunks, 1), DiskCapacity: p.scaled(disk.Chunks, 1),
		Write: r.Now.Write, UnsafeAge: time.Duration(r.Now.UnsafeAge * float64(time.Second)), MinHits: r.Now.MinHits,
		ByCompute: dram.ByCompute, DiskByCompute: disk.ByCompute,
	}
	if row.Tier == "cpu" {
		o.Policy, o.Capacity = row.Policy, p.scaled(dram.Chunks, row.Factor)
	} else {
		o.DiskPolicy, o.DiskCapacity = row.Policy, p.scaled(disk.Chunks, row.Factor)
	}
	o.Capacity = max(1, o.Capacity)
	if o.DiskCapacity == 0 {
		o.DiskPolicy = "lru" // of none
	}
	return true, p.fill(ctx, row, &o)
}

// fill plays a pair, unless it was played before.
func (p *play) fill(ctx context.Context, row *Row, o *simulate.PairOptions) (err error) {
	o.PrefillDepth = p.depth
	played := p.done[*o]
	if played == nil {
		if played, err = p.Play(ctx, o); err != nil {
			return err
		}
		p.done[*o] = played
	}
	row.fill(played, p.shift)
	return nil
}

// scaled is the size in the sample of a cache of so many chunks. All heads are in each
// sample.
func (p *play) scaled(chunks int64, factor float64) int {
	full, heads := float64(chunks)*factor, float64(p.heads)
	if full > heads {
		full = heads + (full-heads)/math.Exp2(float64(p.shift))
	}
	return int(math.Round(full))
}
