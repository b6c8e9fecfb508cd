package whatif

import (
	"math"
	"time"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/lab/simulate"
)

// Report is the hit rates of other sizes and policies for the prompts of a sample.
type Report struct {
	At           time.Time     `json:"at"`            // when the sample was taken
	Since        time.Time     `json:"since"`         // prompts count from then on, and are measured
	Requests     int           `json:"requests"`      // of the sample that count
	AskedTokens  int64         `json:"asked_tokens"`  // of these
	Share        float64       `json:"share"`         // of all sessions that are in the sample
	Dropped      uint64        `json:"dropped"`       // prompts that came too fast for the sample, since the start
	PrefillDepth float64       `json:"prefill_depth"` // tokens; a token at that depth counts twice as compute
	Now          explain.Tiers `json:"now"`
	// Measured is the share of the tokens that the tiers as they are really hit, of all
	// sessions; the row that is current estimates it.
	Measured       float64 `json:"measured"`
	MeasuredTokens uint64  `json:"measured_tokens"` // that were asked for
	Rows           []Row   `json:"rows"`            // by tier, policy and factor
	Bound          *Row    `json:"bound"`           // of a DRAM without end
}

// Row is what the tiers would have hit where one had another policy or size. Shares are of
// the tokens, or of the prefill compute, that were asked for.
type Row struct {
	Tier         string  `json:"tier"` // cpu or disk: which is another
	Policy       string  `json:"policy"`
	Factor       float64 `json:"factor"` // its size, as a multiple of the present one
	Bytes        int64   `json:"bytes"`
	Current      bool    `json:"current"`       // it is the present policy at the present size
	Hit          float64 `json:"hit"`           // in DRAM or on disk
	DRAMHit      float64 `json:"cpu_hit"`       // in DRAM
	Compute      float64 `json:"compute"`       // saved
	HitError     float64 `json:"hit_error"`     // standard error that sampling makes; 0 where all sessions are in
	ComputeError float64 `json:"compute_error"` // likewise
}

// fill takes over what a play came to, of a sample of one in 1<<shift sessions.
func (r *Row) fill(p *simulate.Played, shift uint8) {
	var all simulate.Count
	for i := range p {
		all.Add(&p[i])
	}
	share := func(part, whole float64) float64 { return part / max(1, whole) }
	hit := func(c *simulate.Count) float64 { return share(float64(c.Hit), float64(c.Asked)) }
	compute := func(c *simulate.Count) float64 { return share(c.ComputeOfHits, c.Compute) }
	r.Hit, r.Compute, r.DRAMHit = hit(&all), compute(&all), share(float64(all.DRAM), float64(all.Asked))
	if shift > 0 {
		left := math.Sqrt(1 - 1/math.Exp2(float64(shift)))
		r.HitError, r.ComputeError = left*jackknife(p, &all, hit), left*jackknife(p, &all, compute)
	}
}

// jackknife is the standard error of a ratio, from the ratio without each group of
// sessions.
func jackknife(p *simulate.Played, all *simulate.Count, ratio func(*simulate.Count) float64) float64 {
	sum, squares, n := 0.0, 0.0, 0.0
	for i := range p {
		if p[i].Asked == 0 {
			continue
		}
		without := *all
		without.Sub(&p[i])
		x := ratio(&without)
		sum, squares, n = sum+x, squares+x*x, n+1
	}
	if n < 2 {
		return 1 // of one group nothing is known
	}
	return math.Sqrt(max(0, squares-sum*sum/n) * (n - 1) / n)
}
