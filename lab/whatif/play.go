package whatif

import (
	"context"
	"math"
	"time"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/lab/simulate"
	"github.com/kvstored/kvstored/policy"
)

// factors are the sizes that are tried, as multiples of the present one.
var factors = []float64{0.5, 1, 2, 4}

// Play makes a report of a sample, with a token at depth counting twice as compute. Done is
// told of each row.
func Play(ctx context.Context, s *explain.Sample, depth float64, done func(*Row)) (*Report, error) {
	p := newPlay(s, depth)
	if err := p.all(ctx, done); err != nil {
		return nil, err
	}
	return &p.report, nil
}

// Rows is how many rows a report of a sample has.
func Rows(s *explain.Sample) int { return len(newPlay(s, 1).report.Rows) }

// play is one report in the making.
type play struct {
	simulate.Prompts
	sample *explain.Sample
	report Report
	depth  float64
	share  float64 // of what was asked for that is in the sample
	done   map[simulate.PairOptions]*simulate.Played
}

// newPlay lists the rows of a report. What came before the measurement began fills the
// caches, and does not count.
func newPlay(s *explain.Sample, depth float64) *play {
	p := &play{sample: s, depth: depth, done: make(map[simulate.PairOptions]*simulate.Played)}
	p.Parents, p.List = s.Parents, make([]simulate.Prompt, len(s.Prompts))
	now := s.Tiers
	p.report = Report{At: s.At, Since: s.Measured.Since, Share: 1 / math.Exp2(float64(s.Shift)), Dropped: s.Dropped, PrefillDepth: depth, Now: now}
	if m := s.Measured; m.AskedTokens > 0 {
		p.report.Measured = float64(m.HitTokens) / float64(m.AskedTokens)
		p.report.MeasuredTokens = m.AskedTokens
	}
	for i := range s.Prompts {
		q := &s.Prompts[i]
		p.List[i] = simulate.Prompt{
			Last: q.Last, Chunk: int(q.Chunk), Tokens: int(q.Tokens), Skip: int(q.Skip), Millis: q.Millis, Group: q.Group,
			Warmup: q.Warmup || q.Millis <= s.Measured.Since.UnixMilli(),
		}
	}
	add := func(name string, t *explain.Tier) {
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
	for i := range p.List {
		if q := &p.List[i]; !q.Warmup {
			p.report.Requests++
			p.report.AskedTokens += int64(q.Tokens - q.Skip)
		}
	}
	p.share = shareOf(s, p.report.AskedTokens)
	return p
}

// all plays all rows, and the bound.
func (p *play) all(ctx context.Context, done func(*Row)) error {
	r := &p.report
	for i := range r.Rows {
		if err := p.row(ctx, &r.Rows[i]); err != nil {
			return err
		}
		done(&r.Rows[i])
	}
	r.Bound = &Row{Tier: "cpu", Policy: r.Now.DRAM.Policy}
	return p.fill(ctx, r.Bound, &simulate.PairOptions{Policy: "lru", DiskPolicy: "lru", Capacity: max(1, len(p.Parents))})
}

// row plays one row.
func (p *play) row(ctx context.Context, row *Row) error {
	r := &p.report
	dram, disk := r.Now.DRAM, r.Now.Disk
	o := simulate.PairOptions{
		Policy: dram.Policy, DiskPolicy: disk.Policy, Capacity: p.scaled(dram.Chunks, 1), DiskCapacity: p.scaled(disk.Chunks, 1),
		Write: simulate.Write(r.Now.Write), UnsafeAge: time.Duration(r.Now.UnsafeAge * float64(time.Second)),
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
	return p.fill(ctx, row, &o)
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
	row.fill(played, p.sample.Shift)
	return nil
}

// shareOf is the share of what was asked for that is in a sample, of which so many tokens
// count. Chance gives it more or fewer sessions than one in 1<<Shift; what was measured
// tells, unless it is of something else.
func shareOf(s *explain.Sample, tokens int64) float64 {
	one := 1 / math.Exp2(float64(s.Shift))
	if s.Shift == 0 || s.Measured.AskedTokens == 0 {
		return one
	}
	return min(max(float64(tokens)/float64(s.Measured.AskedTokens), one/2), 2*one)
}

// scaled is the size in the sample of a cache of so many chunks. All heads are in each
// sample.
func (p *play) scaled(chunks int64, factor float64) int {
	full, heads := float64(chunks)*factor, float64(p.sample.Heads)
	if full > heads {
		full = heads + (full-heads)*p.share
	}
	return int(math.Round(full))
}
